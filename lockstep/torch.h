// Everything of Lockstep that a LibTorch program uses.
#pragma once

#include "lockstep/group/group.h"
#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/gradient_norm.h"
#include "lockstep/torch/learning_rate.h"
#include "lockstep/torch/loss_scaler.h"
#include "lockstep/torch/mirrored.h"
#include "lockstep/torch/shard.h"
#include "lockstep/torch/sync_batch_norm.h"
#include "lockstep/torch/tensor.h"
