// Attention of few queries, for decoding.
#include "few_queries.h"

extern "C" {

void qkv_attend(const void* q, const void* k, const void* v, void* out, const Attention* a) { attend_any(*a, q, k, v, out); }
}
