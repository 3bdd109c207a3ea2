int stepc_compiler_anchor = 0;
