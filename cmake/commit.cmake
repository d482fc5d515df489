# Writes OUTPUT: the function that returns the commit of the sources. COMMIT, if it is given, names it; otherwise git
# does. Without git, or outside of a repository of its own (an archive of the sources), it is not known and empty.
if(NOT COMMIT AND EXISTS ${SOURCE}/.git)
  find_program(GIT git)
  if(GIT)
    execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --abbrev=40 --exclude=* --dirty=-changed
                    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT COMMIT MATCHES "^[0-9A-Za-z._-]*$")
  message(FATAL_ERROR "QUINTET_COMMIT is \"${COMMIT}\": expected letters, digits, '.', '_' and '-'")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#include "cli/provenance.h"

namespace quintet::cli {

const char* commit() { return "@COMMIT@"; }

}  // namespace quintet::cli
]] @ONLY)
