# Checks of the tree itself, as tests beside the others: the layering and the checker's own planted violations.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME layers COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_layers.py)
add_test(NAME layers_self_test COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_layers.py --self-test)
