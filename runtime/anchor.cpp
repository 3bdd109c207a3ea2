int stepc_runtime_anchor = 0;
