# Checks of the whole tree, as tests: the layering, and faults planted to test the checkers themselves.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME layers COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_layers.py)
foreach(check layers status docs version commits)
  add_test(NAME ${check}_self_test COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_${check}.py --self-test)
endforeach()
add_test(NAME run_tests_self_test COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/run_tests.py --self-test)

# The installed package, found and used by a separate project.
add_test(NAME consumer
  COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DSOURCE=${PROJECT_SOURCE_DIR}/tests/consumer
    -DGENERATOR=${CMAKE_GENERATOR} -DSANITIZE=${QUINTET_SANITIZE} -P ${PROJECT_SOURCE_DIR}/tests/consumer/run.cmake)
set_tests_properties(consumer PROPERTIES TIMEOUT 600)
