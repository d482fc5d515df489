# The CUDA compiler and toolkit. Included only when QUINTET_CUDA is on: other builds never look for them.
# Hopper by default; -DCMAKE_CUDA_ARCHITECTURES="80;90a-real;100" for Ampere and Blackwell too. PTX of 90a runs on
# Hopper alone, which has machine code already.
include(CheckLanguage)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "QUINTET_CUDA=ON, but no CUDA compiler was found. Install the CUDA toolkit (13.0 or later) and put its bin folder on PATH, or configure without QUINTET_CUDA to train on CPU.")
endif()
enable_language(CUDA)
# CMake before 3.26 does not know that this compiler has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# Machine code is compressed too, not only PTX; the driver unpacks what a program uses.
string(APPEND CMAKE_CUDA_FLAGS " --compress-mode=size")
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
find_package(CUDAToolkit 13.0 REQUIRED)
# cuDNN and NCCL are also looked for in Python's packages.
find_package(Python3 QUIET COMPONENTS Interpreter)
# An installed tool finds the libraries where the build found them.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
