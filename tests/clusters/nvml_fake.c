/* A stand-in for libnvidia-ml.so.1 with two products, a card cut by MIG and one that fell off the bus.
   Only the calls of workloads/clusters/nvml.py, with the signatures of nvml.h. FAKE_NVML_BROKEN: no driver answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static const struct { const char *name; unsigned long long mib; int mig; } cards[] = {
  {"NVIDIA A100-SXM4-80GB", 81920, 0}, {"NVIDIA A100-SXM4-80GB", 81920, 1}, {0, 0, 0}, {"Tesla T4", 15360, 0}};
static int ids[] = {0, 1, 2, 3};
static int put(char *to, unsigned size, const char *text) {
  if (strlen(text) + 1 > size) return 7;
  strcpy(to, text);
  return 0;
}
int nvmlInit_v2(void) { return getenv("FAKE_NVML_BROKEN") ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return put(text, size, "580.126.20"); }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) {
  if (i > 3 || !cards[i].name) return 15; /* NVML_ERROR_GPU_IS_LOST */
  *device = &ids[i];
  return 0;
}
int nvmlDeviceGetName(void *d, char *text, unsigned size) { return put(text, size, cards[*(int *)d].name); }
int nvmlDeviceGetUUID(void *d, char *text, unsigned size) {
  char id[64];
  snprintf(id, sizeof id, "GPU-0000000%d-aaaa-bbbb-cccc-dddddddddddd", *(int *)d);
  return put(text, size, id);
}
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) {
  m->total = cards[*(int *)d].mib << 20; m->used = *(int *)d == 3 ? 512ull << 20 : 0; m->free = m->total - m->used;
  return 0;
}
typedef struct { unsigned gpu, memory; } utilization_t;
int nvmlDeviceGetUtilizationRates(void *d, utilization_t *rates) {
  if (*(int *)d == 0) return 3; /* NVML_ERROR_NOT_SUPPORTED */
  rates->gpu = 40; rates->memory = 10;
  return 0;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *milliwatts) { *milliwatts = 65500; return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *pending) {
  if (*(int *)d == 3) return 3; /* a T4 has no such mode */
  *now = *pending = cards[*(int *)d].mig;
  return 0;
}
