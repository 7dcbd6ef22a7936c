# Defines unisono::mpi by the MPI that find_package(MPI) finds; where there is none there is no such target, and that is no error.
# Included by this repository (UNISONO_MPI) and by the installed package (COMPONENTS mpi).
if(NOT TARGET unisono::mpi)
    find_package(MPI 3.0 QUIET COMPONENTS CXX)
    if(MPI_CXX_FOUND)
        add_library(unisono::mpi INTERFACE IMPORTED ${unisono_target_scope})
        set_target_properties(unisono::mpi PROPERTIES
            INTERFACE_COMPILE_DEFINITIONS "OMPI_SKIP_MPICXX;MPICH_SKIP_MPICXX" # MPI's own C++ is long gone
            INTERFACE_LINK_LIBRARIES "unisono::unisono;MPI::MPI_CXX")
    endif()
endif()
