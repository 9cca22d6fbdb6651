#!/usr/bin/env bash
# Serve a model for memserver with vLLM on this host's GPU. docs/operations.md says why each flag is there.
#
# MODEL          the model's directory or name; default: $HOME/model
# GGUF           a GGUF of the llama architecture: MODEL is made of it first, if it isn't there
# CHAT_TEMPLATE  Jinja file; default: the model's own
# HOST, PORT     where to listen; default: 127.0.0.1 8000
# MAX_MODEL_LEN  tokens of prompt and output; default: 8192
# SERVED_NAME    what requests call the model; default: the last part of MODEL
# API_SERVERS    processes that speak HTTP; default: 4
# MODE           json_schema (default) or tools: what MEMSERVER_LLM_MODE will be
# VLLM_SITE      a folder that vLLM was installed to with pip --target; default: vLLM is installed
# PYTHON         default: python3
#
# usage: gpu_host.sh [further arguments for vllm serve, which overrule those here]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
model=${MODEL:-$HOME/model}

if [[ -n "${GGUF:-}" && ! -e "$model/config.json" ]]; then
  mkdir -p "$model"
  PYTHONPATH=$here "$python" -c \
    'import sys; from memserver.local.engine.convert import main; sys.exit(main(sys.argv[1:]))' \
    "$GGUF" "$model" "$here/memserver/local/engine/chat_template.jinja"
fi

# guidance keeps to a schema's x-guidance; xgrammar is the one that takes strict native tools.
backend=guidance
[[ "${MODE:-json_schema}" == tools ]] && backend=xgrammar

export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1} TRANSFORMERS_OFFLINE=${TRANSFORMERS_OFFLINE:-1}
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export VLLM_USE_FLASHINFER_SAMPLER=${VLLM_USE_FLASHINFER_SAMPLER:-0}
if [[ -n "${VLLM_SITE:-}" ]]; then export PYTHONPATH=$VLLM_SITE; fi

exec "$python" -m vllm.entrypoints.cli.main serve "$model" \
  --served-model-name "${SERVED_NAME:-$(basename "$model")}" \
  --host "${HOST:-127.0.0.1}" --port "${PORT:-8000}" \
  --max-model-len "${MAX_MODEL_LEN:-8192}" --dtype bfloat16 \
  --api-server-count "${API_SERVERS:-4}" \
  --enable-prefix-caching \
  --enable-auto-tool-choice --tool-call-parser hermes \
  --structured-outputs-config "{\"backend\": \"$backend\", \"disable_any_whitespace\": true}" \
  ${CHAT_TEMPLATE:+--chat-template "$CHAT_TEMPLATE"} \
  --uvicorn-log-level warning --disable-uvicorn-access-log \
  "$@"
