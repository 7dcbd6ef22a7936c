// A simulation on an MPI communicator of its own, and a polynomial fitted to its results by rank 0.
#include <mpi.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

// A point of a curve that is expensive to compute.
double simulate(double at) { return std::sin(3 * at) + 0.3 * std::cos(20 * at); }

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 0;
    MPI_Comm compute = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &compute);
    MPI_Comm_rank(compute, &rank);
    MPI_Comm_size(compute, &ranks);

    const int points = 1200 / ranks;
    std::vector<double> mine, all(1200);
    for (int i = 0; i < points; ++i) mine.push_back(simulate((rank * points + i) / 600.0 - 1));
    MPI_Gather(mine.data(), points, MPI_DOUBLE, all.data(), points, MPI_DOUBLE, 0, compute);

    std::array<double, 6> w{};
    for (int step = 0; rank == 0 && step < 200; ++step) {
        std::array<double, 6> gradient{};
        for (int i = 0; i < 1200; ++i) {
            const double x = i / 600.0 - 1;
            double error = -all[static_cast<std::size_t>(i)], power = 1;
            for (const double one : w) error += one * power, power *= x;
            power = 1;
            for (double& one : gradient) one += error * power / 1200, power *= x;
        }
        for (std::size_t j = 0; j < w.size(); ++j) w[j] -= 0.5 * gradient[j];
    }
    MPI_Bcast(w.data(), 6, MPI_DOUBLE, 0, compute);
    if (rank == 0) std::printf("%.9f %.9f %.9f %.9f %.9f %.9f\n", w[0], w[1], w[2], w[3], w[4], w[5]);
    MPI_Comm_free(&compute);
    MPI_Finalize();
}
