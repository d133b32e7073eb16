# The measured results of docs/results/levers as a source file, so that `ridge levers --catalog` has them wherever the
# program is installed. Sets RIDGE_LEVER_RESULTS to its path.
file(GLOB results RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/results/levers/*.json)
list(SORT results)
set(text "// Made by cmake/lever_results.cmake.\n#include \"cli/lever_results.h\"\n\nnamespace ridge {\n\n")
string(APPEND text "std::vector<CommittedResult> committed_results() {\n    return {\n")
foreach(path IN LISTS results)
  file(READ ${PROJECT_SOURCE_DIR}/${path} json)
  string(APPEND text "        {\"${path}\", R\"ridge(${json})ridge\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${path})
endforeach()
string(APPEND text "    };\n}\n\n}  // namespace ridge\n")
set(RIDGE_LEVER_RESULTS ${PROJECT_BINARY_DIR}/lever_results.cpp)
file(WRITE ${RIDGE_LEVER_RESULTS}.new "${text}")
configure_file(${RIDGE_LEVER_RESULTS}.new ${RIDGE_LEVER_RESULTS} COPYONLY)  # touches it only where it differs
