# Writes OUTPUT: the function that returns the commit of the sources. COMMIT, if it is given, names it; otherwise git
# does; changes that are not committed add "-changed." and the start of a hash of their diff, so that two results are of
# the same sources exactly if they name the same ones. Without git, or outside of a repository of its own (an archive of
# the sources), it is not known and empty.
if(NOT COMMIT AND EXISTS ${SOURCE}/.git)
  find_program(GIT git)
  if(GIT)
    execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --abbrev=40 --exclude=* --dirty=-changed
                    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(COMMIT MATCHES "-changed$")
      execute_process(COMMAND ${GIT} -C ${SOURCE} diff --binary --no-ext-diff --no-textconv HEAD
                      OUTPUT_FILE ${OUTPUT}.diff ERROR_QUIET RESULT_VARIABLE failed)
      if(NOT failed)
        file(SHA256 ${OUTPUT}.diff hash)
        string(SUBSTRING ${hash} 0 12 hash)
        string(APPEND COMMIT ".${hash}")
      endif()
      file(REMOVE ${OUTPUT}.diff)
    endif()
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
