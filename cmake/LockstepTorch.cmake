# What the target `torch` needs beyond find_package(Torch). The installed package includes this too,
# so that a program that uses Lockstep is built against the LibTorch that Lockstep was built against.

# A folder without LibTorch's own CMake files being used: those of a build with CUDA ask for the CUDA
# toolkit, which a program that computes on the CPU has no use for. Only the CPU's libraries are
# linked.
if(LOCKSTEP_LIBTORCH AND NOT TARGET torch)
  foreach(file include/ATen/ATen.h lib/libtorch_cpu.so lib/libc10.so)
    if(NOT EXISTS ${LOCKSTEP_LIBTORCH}/${file})
      message(FATAL_ERROR "LOCKSTEP_LIBTORCH is ${LOCKSTEP_LIBTORCH}, which has no ${file}: it must "
        "be LibTorch's folder, or the folder torch of an installed Python package")
    endif()
  endforeach()
  add_library(torch INTERFACE IMPORTED)
  set_target_properties(torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${LOCKSTEP_LIBTORCH}/include;${LOCKSTEP_LIBTORCH}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES
      "${LOCKSTEP_LIBTORCH}/lib/libtorch_cpu.so;${LOCKSTEP_LIBTORCH}/lib/libc10.so")
  set(TORCH_LIBRARIES torch)
endif()

# LibTorch 2.x comes with headers of an fmt of its own, but without the library of them: the ones of
# the fmt that is linked must be found first.
get_target_property(torch_includes torch INTERFACE_INCLUDE_DIRECTORIES)
get_target_property(fmt_includes fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
list(GET fmt_includes 0 fmt_include)
foreach(include ${torch_includes})
  if(EXISTS ${include}/fmt/core.h AND NOT include IN_LIST fmt_includes)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lockstep_fmt)
    file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/lockstep_fmt/fmt SYMBOLIC)
    set_target_properties(torch PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_BINARY_DIR}/lockstep_fmt;${torch_includes}")
    break()
  endif()
endforeach()
