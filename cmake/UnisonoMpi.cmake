# Defines unisono::mpi for the MPI that find_package(MPI) finds. If it finds none, there is no such
# target, which is no error. This repository (UNISONO_MPI) and the installed package (COMPONENTS
# mpi) include this file.
if(NOT TARGET unisono::mpi)
    find_package(MPI 3.0 QUIET COMPONENTS CXX)
    if(MPI_CXX_FOUND)
        add_library(unisono::mpi INTERFACE IMPORTED ${unisono_target_scope})
        set_target_properties(unisono::mpi PROPERTIES
            # Without MPI's obsolete C++ interface.
            INTERFACE_COMPILE_DEFINITIONS "OMPI_SKIP_MPICXX;MPICH_SKIP_MPICXX"
            INTERFACE_LINK_LIBRARIES "unisono::unisono;MPI::MPI_CXX")
    endif()
endif()
