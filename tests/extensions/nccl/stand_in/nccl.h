// A STAND-IN for NCCL, over memory of the host, for tests on machines without a GPU. It has what
// unisono/extensions/nccl/ uses. See stand_in.hpp.
#pragma once

#include "cuda_runtime_api.h"

#include <cstddef>

#ifndef NCCL_VERSION_CODE // a test of old headers defines another
#define NCCL_VERSION_CODE 23007
#endif

typedef struct StandInCommunicator* ncclComm_t;
struct ncclUniqueId {
    char internal[128];
};
typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress
} ncclResult_t;
typedef enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclBfloat16,
    ncclFloat = ncclFloat32
} ncclDataType_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps } ncclRedOp_t;
typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;
struct ncclConfig_t {
    int blocking;
    int splitShare;
};
#define NCCL_CONFIG_INITIALIZER \
    { 1, 0 }
#define NCCL_SPLIT_NOCOLOR -1
typedef struct StandInWindow* ncclWindow_t;
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_REVOKE_DEFAULT 0

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
const char* ncclGetErrorString(ncclResult_t code);
const char* ncclGetLastError(ncclComm_t communicator);

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t from, int colour, int key, ncclComm_t* made, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommRevoke(ncclComm_t communicator, int flags);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* found);
ncclResult_t ncclCommCount(ncclComm_t communicator, int* count);
ncclResult_t ncclCommCuDevice(ncclComm_t communicator, int* device);
ncclResult_t ncclCommUserRank(ncclComm_t communicator, int* rank);

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes);
ncclResult_t ncclMemFree(void* memory);
ncclResult_t ncclCommRegister(ncclComm_t communicator, void* memory, std::size_t bytes, void** registration);
ncclResult_t ncclCommDeregister(ncclComm_t communicator, void* registration);

ncclResult_t ncclCommWindowRegister(ncclComm_t communicator, void* memory, std::size_t bytes, ncclWindow_t* made,
                                    int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t communicator, ncclWindow_t window);

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* made, void* scalar, ncclDataType_t type, ncclScalarResidence_t where,
                                      ncclComm_t communicator);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t communicator);

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
