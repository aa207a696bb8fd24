// TROUPE_HD marks a function for host and device; nothing where nvcc does not compile.
#pragma once

#ifdef __CUDACC__
#define TROUPE_HD __host__ __device__
#else
#define TROUPE_HD
#endif
