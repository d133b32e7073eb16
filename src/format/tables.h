// Written by tools/make_format_tables.py from the numpy code of the PyPI package `gguf`; do not edit.
//
// Where each table lies in the words of tables.def, which all backends bind as one array: first word, words.
// Read with TAB(table, i), see dialect.h. How the words are packed is said in the script.
#define iq2xxs_grid 0u, 512u
#define iq2xs_grid 512u, 1024u
#define iq2s_grid 1536u, 2048u
#define iq3xxs_grid 3584u, 256u
#define iq3s_grid 3840u, 512u
#define iq1s_grid 4352u, 2048u
#define iq4nl_values 6400u, 4u
#define mxfp4_values 6404u, 4u
#define TABLE_WORDS 6408
