#include <lockstep/lockstep_c.h>
#include <stdio.h>

int main(void) {
  lockstep_group group;
  float value = 1;
  lockstep_tensor tensor = lockstep_dense(&value, 1, LOCKSTEP_F32);
  if (lockstep_init(&group) != LOCKSTEP_OK ||
      lockstep_all_reduce(group, &tensor, NULL, LOCKSTEP_SUM, NULL) != LOCKSTEP_OK) {
    fprintf(stderr, "%s\n", lockstep_last_error());
    return 1;
  }
  printf("rank %d of %d: %g\n", lockstep_rank(group), lockstep_size(group), (double)value);
  if (value != (float)lockstep_size(group)) return 1;
  return lockstep_group_free(group);
}
