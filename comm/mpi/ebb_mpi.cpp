#include "comm/mpi/ebb_mpi.h"

#include <mpi.h>

#include <cstdlib>
#include <random>
#include <vector>

namespace ebb {

struct MpiRequest {
  MPI_Request request = MPI_REQUEST_NULL;
};

namespace {

MPI_Comm ranks_of_run = MPI_COMM_NULL;
char error_text[MPI_MAX_ERROR_STRING];

const char* text_of(int result) {
  if (result == MPI_SUCCESS) return nullptr;
  int length = 0;
  MPI_Error_string(result, error_text, &length);
  return error_text;
}

const char* start(uint32_t* rank, uint32_t* size, uint64_t* run) {
  int is_started = 0, level = 0, number = 0;
  MPI_Initialized(&is_started);
  if (is_started != 0) return "this process has started MPI before; it can be started once";
  // With more processes than cores, OpenMPI would yield in each call, and a thread that yields may
  // wait for all others. The caller sleeps instead.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
  if (const char* text = text_of(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level))) {
    return text;
  }
  if (level < MPI_THREAD_FUNNELED) return "this MPI does not allow programs with threads";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const char* text = text_of(MPI_Comm_dup(MPI_COMM_WORLD, &ranks_of_run))) return text;
  MPI_Comm_set_errhandler(ranks_of_run, MPI_ERRORS_RETURN);
  MPI_Comm_rank(ranks_of_run, &number);
  *rank = static_cast<uint32_t>(number);
  MPI_Comm_size(ranks_of_run, &number);
  *size = static_cast<uint32_t>(number);
  std::random_device random;
  *run = uint64_t{random()} << 32 | random();
  return text_of(MPI_Bcast(run, 1, MPI_UINT64_T, 0, ranks_of_run));
}

const char* machines(uint32_t* machines) {
  int rank = 0;
  MPI_Comm_rank(ranks_of_run, &rank);
  MPI_Comm machine = MPI_COMM_NULL;
  int result =
      MPI_Comm_split_type(ranks_of_run, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  if (result != MPI_SUCCESS) return text_of(result);
  auto lowest = static_cast<uint32_t>(rank);
  result = MPI_Bcast(&lowest, 1, MPI_UINT32_T, 0, machine);
  MPI_Comm_free(&machine);
  if (result != MPI_SUCCESS) return text_of(result);
  return text_of(MPI_Allgather(&lowest, 1, MPI_UINT32_T, machines, 1, MPI_UINT32_T, ranks_of_run));
}

/// Gives the request to the caller, unless it could not begin.
const char* begun(int result, MpiRequest* made, MpiRequest** request) {
  if (result == MPI_SUCCESS) {
    *request = made;
    return nullptr;
  }
  delete made;
  return text_of(result);
}

const char* send(uint32_t to, uint32_t tag, const void* data, size_t bytes, MpiRequest** request) {
  auto* const made = new MpiRequest;
  const int result = MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to),
                               static_cast<int>(tag), ranks_of_run, &made->request);
  return begun(result, made, request);
}

const char* receive(uint32_t from, uint32_t tag, void* data, size_t bytes, MpiRequest** request) {
  auto* const made = new MpiRequest;
  const int source = from == kMpiAnyRank ? MPI_ANY_SOURCE : static_cast<int>(from);
  const int result = MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source,
                               static_cast<int>(tag), ranks_of_run, &made->request);
  return begun(result, made, request);
}

const char* test(MpiRequest** request, uint32_t* from, size_t* bytes) {
  int has_ended = 0, count = 0;
  MPI_Status status = {};
  const int result = MPI_Test(&(*request)->request, &has_ended, &status);
  if (result != MPI_SUCCESS) return text_of(result);
  if (has_ended == 0) return nullptr;
  MPI_Get_count(&status, MPI_BYTE, &count);
  *from = static_cast<uint32_t>(status.MPI_SOURCE);
  *bytes = static_cast<size_t>(count);
  delete *request;
  *request = nullptr;
  return nullptr;
}

const char* cancel(MpiRequest** request) {
  int result = MPI_Cancel(&(*request)->request);
  if (result == MPI_SUCCESS) result = MPI_Wait(&(*request)->request, MPI_STATUS_IGNORE);
  delete *request;
  *request = nullptr;
  return text_of(result);
}

const char* finish() {
  MPI_Comm_free(&ranks_of_run);
  return text_of(MPI_Finalize());
}

constexpr MpiFunctions kFunctions = {start, machines, send, receive, test, cancel, finish};

}  // namespace
}  // namespace ebb

extern "C" __attribute__((visibility("default"))) const ebb::MpiFunctions* ebb_mpi_functions_1() {
  return &ebb::kFunctions;
}
