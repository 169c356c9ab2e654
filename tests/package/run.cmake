# Installs the build into an empty folder, builds the outside programs against it, runs them on 3
# ranks.
foreach(name BUILD SOURCE WORK)
  if(NOT DEFINED ${name})
    message(FATAL_ERROR "run.cmake needs -D${name}=…")
  endif()
endforeach()
function(must)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGV}\nended with ${status}:\n${out}")
  endif()
endfunction()
file(REMOVE_RECURSE ${WORK})
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
must(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_PREFIX_PATH=${WORK}/installed)
must(${CMAKE_COMMAND} --build ${WORK}/build)
# As a C program that knows nothing of CMake is built.
file(GLOB_RECURSE package ${WORK}/installed/*/lockstep.pc)
get_filename_component(package_folder ${package} DIRECTORY)
must(sh -c "PKG_CONFIG_PATH='${package_folder}' && export PKG_CONFIG_PATH && set -e && \
  flags=$(pkg-config --cflags --libs lockstep) && \
  where=$(pkg-config --variable=libdir lockstep) && \
  cc -std=c99 '${SOURCE}/outside_c.c' $flags -Wl,-rpath,$where -o '${WORK}/build/outside_pkgconfig'")
foreach(program outside outside_c outside_pkgconfig outside_torch)
  if(EXISTS ${WORK}/build/${program})
    must(${WORK}/installed/bin/lockstep run -n 3 -- ${WORK}/build/${program})
  endif()
endforeach()
