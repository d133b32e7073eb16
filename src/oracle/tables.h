// The published data tables of the IQ formats, in the shape the oracle reads them: one character per coordinate.
#pragma once

#include <string_view>

namespace ridge::oracle {

// `rows` points of `length` coordinates. digits[length * row + j] - '0' numbers one of `levels`.
struct Grid {
    unsigned length;
    unsigned rows;
    signed char levels[8];
    std::string_view digits;

    // Precondition: row < rows, j < length.
    int at(unsigned row, unsigned j) const { return levels[digits[length * row + j] - '0']; }
};

extern const Grid kGridIq2Xxs;
extern const Grid kGridIq2Xs;
extern const Grid kGridIq2S;
extern const Grid kGridIq3Xxs;
extern const Grid kGridIq3S;
extern const Grid kGridIq1;  // of IQ1_S and IQ1_M; coordinates -1, 0, 1

// The sign patterns of IQ2_XXS, IQ2_XS and IQ3_XXS: seven stored bits name eight signs.
extern const unsigned char kSigns[128];

}  // namespace ridge::oracle
