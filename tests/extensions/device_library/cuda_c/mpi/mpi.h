// What the program needs of MPI, for ranks that are threads of this process (threads.cpp).
#pragma once

using MPI_Comm = int;
using MPI_Datatype = int;
inline constexpr MPI_Comm MPI_COMM_WORLD = 0;
inline constexpr MPI_Datatype MPI_BYTE = 1; // NOLINT: MPI's names

int MPI_Init(int* argc, char*** argv);
int MPI_Comm_rank(MPI_Comm world, int* rank);
int MPI_Comm_size(MPI_Comm world, int* ranks);
int MPI_Bcast(void* data, int bytes, MPI_Datatype type, int root, MPI_Comm world);
int MPI_Finalize();
