// The problems of the gate, by operation. Each function tries all of its problems; gate.cpp lists them.
#pragma once

#include "measure/gate_case.h"

namespace ridge::gate {

void try_contract(Trial &trial);     // gate_contract.cpp
void try_gate_up(Trial &trial);      //
void try_embed(Trial &trial);        // gate_rows.cpp
void try_rmsnorm(Trial &trial);      //
void try_add_rmsnorm(Trial &trial);  //
void try_quantize(Trial &trial);     //
void try_elementwise(Trial &trial);  // add, glu, scale, row_gate, gather_rows
void try_softmax(Trial &trial);      // gate_moe.cpp: softmax, normalize
void try_top_k(Trial &trial);        //
void try_arg_max(Trial &trial);      //
void try_moe_route(Trial &trial);    //
void try_moe_combine(Trial &trial);  //
void try_sample(Trial &trial);       // gate_sample.cpp
void try_rope_table(Trial &trial);   // gate_attention.cpp
void try_rope(Trial &trial);         //
void try_kv_write(Trial &trial);     //
void try_qk_norm_rope(Trial &trial);
void try_attention(Trial &trial);

}  // namespace ridge::gate
