int stepc_emit_anchor = 0;
