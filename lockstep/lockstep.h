// Everything of Lockstep that needs no tensor library.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/base/types.h"
#include "lockstep/base/version.h"
#include "lockstep/group/group.h"
