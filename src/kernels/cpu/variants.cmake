# Each cpu/<concern>/*.inc is compiled once per instruction set, into a namespace named after the set;
# cpu/support/isa.cc decides at run time which of them is called.
# Instrumented code takes very long to compile at -O3 and gains nothing there.
if(QUINTET_SANITIZE)
  set(level -O1)
else()
  set(level -O3)
endif()
set(baseline_flags ${level} -Wno-psabi)
set(avx2_flags ${level} -Wno-psabi -mavx2 -mfma -mf16c -mbmi2)
set(avx512_flags ${level} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mbmi2 -mprefer-vector-width=512
                 -Wno-maybe-uninitialized)
file(GLOB concerns CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/cpu
     ${CMAKE_CURRENT_SOURCE_DIR}/cpu/*/*.inc)
foreach(file ${concerns})
  string(REGEX REPLACE "\\.inc$" "" concern ${file})
  string(REPLACE "/" "_" concern ${concern})
  foreach(isa baseline avx2 avx512)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/cpu/${concern}_${isa}.cc)
    file(CONFIGURE OUTPUT ${source}
         CONTENT "#define QUINTET_ISA ${isa}\n#include \"kernels/cpu/${file}\"\n")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${${isa}_flags}")
    target_sources(quintet_kernels PRIVATE ${source})
  endforeach()
endforeach()
