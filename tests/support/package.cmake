# Installs the library to a scratch prefix, builds conan/test_package against it with find_package alone, and runs that.
set(prefix ${binary}/package/prefix)
set(build ${binary}/package/build)
file(REMOVE_RECURSE ${prefix} ${build})
function(must)
    execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
must(${CMAKE_COMMAND} --install ${binary} --prefix ${prefix})
must(${CMAKE_COMMAND} -S ${source}/conan/test_package -B ${build} -G ${generator}
     -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix})
must(${CMAKE_COMMAND} --build ${build})
must(${build}/test_package)
