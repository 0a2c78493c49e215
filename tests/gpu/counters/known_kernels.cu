// Kernels with known work, each with one property that a rule must see. Built by known_kernels.py: nvcc -lineinfo -shared.
#include <cuda_runtime.h>
#define EXPORT extern "C" int

__global__ void copy_float4(const float4* in, float4* out, long n) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) out[i] = in[i];
}

__global__ void copy_strided(const float* in, float* out, long rows, long columns) {
    // Neighbouring threads read neighbouring rows: every thread of a warp touches another 32-byte sector.
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    long row = i % rows, column = i / rows;
    out[i] = in[row * columns + column];
}

__global__ void sum_blocks(const float* in, float* out, long n) {
    __shared__ float part[256];
    float sum = 0.f;
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}

__global__ void bank_conflicts(float* out, int rounds) {
    __shared__ float tile[32][32];
    int lane = threadIdx.x & 31, row = threadIdx.x >> 5;
    tile[row][lane] = lane;
    __syncthreads();
    float sum = 0.f;
    for (int k = 0; k < rounds; ++k) {
        volatile float* column = &tile[0][row];
        sum += column[lane * 32];  // 32 lanes, one bank
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(1024, 2) spills(const float* in, float* out, int rounds) {
    float held[64];
    int base = (blockIdx.x * blockDim.x + threadIdx.x) * 64;
#pragma unroll
    for (int k = 0; k < 64; ++k) held[k] = in[base + k];
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int k = 0; k < 64; ++k) held[k] = held[k] * held[(k + 1) & 63] + held[(k + 17) & 63];
    }
#pragma unroll
    for (int k = 0; k < 64; ++k) out[base + k] = held[k];
}

__global__ void fma_chain(float* out, int rounds) {
    // rounds * 4 FFMA a thread = rounds * 8 FLOPs.
    float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 2.f;
    for (int k = 0; k < rounds; ++k) { a = a * b + c; c = c * b + d; d = d * b + a; b = b * 0.9999f + 1e-5f; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

__global__ void one_block_chase(const int* next, int* out, int hops) {
    int at = threadIdx.x;
    for (int k = 0; k < hops; ++k) at = next[at];
    out[threadIdx.x] = at;
}

__global__ void promoted(const float* in, float* out, int n, int rounds) {
    // 0.999 is a double: every product is promoted to float64 and back.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    for (int k = 0; k < rounds; ++k) x = x * 0.999 + 1e-3;
    out[i] = x;
}

static int done() { return (int)cudaGetLastError(); }
EXPORT run_copy_float4(const void* in, void* out, long n) { copy_float4<<<2112, 256>>>((const float4*)in, (float4*)out, n / 4); return done(); }
EXPORT run_copy_strided(const void* in, void* out, long rows, long columns) {
    copy_strided<<<(unsigned)((rows * columns + 255) / 256), 256>>>((const float*)in, (float*)out, rows, columns); return done(); }
EXPORT run_sum_blocks(const void* in, void* out, long n) { sum_blocks<<<1056, 256>>>((const float*)in, (float*)out, n); return done(); }
EXPORT run_bank_conflicts(void* out, int rounds) { bank_conflicts<<<1056, 1024>>>((float*)out, rounds); return done(); }
EXPORT run_spills(const void* in, void* out, int rounds) { spills<<<264, 1024>>>((const float*)in, (float*)out, rounds); return done(); }
EXPORT run_fma_chain(void* out, int rounds) { fma_chain<<<1056, 1024>>>((float*)out, rounds); return done(); }
EXPORT run_one_block_chase(const void* next, void* out, int hops) { one_block_chase<<<1, 64>>>((const int*)next, (int*)out, hops); return done(); }
EXPORT run_promoted(const void* in, void* out, int n, int rounds) { promoted<<<(n + 255) / 256, 256>>>((const float*)in, (float*)out, n, rounds); return done(); }
