// The tables of formats for the kernels of this library, which shares nothing with the program that loads it.
#include "format/dialect.h"

namespace ridge::dialect {

const u32 table_words[TABLE_WORDS] = {
#include "format/tables.def"
};

}  // namespace ridge::dialect
