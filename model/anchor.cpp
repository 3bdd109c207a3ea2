int stepc_model_anchor = 0;
