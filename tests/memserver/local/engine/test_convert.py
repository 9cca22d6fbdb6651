import json
import struct
from pathlib import Path
from typing import Any

import pytest

from memserver.errors import SetupError
from tests.memserver.local.engine.gguf_writer import write_gguf

np = pytest.importorskip("numpy")
from memserver.local.engine.convert import convert, main  # noqa: E402 - after the check for numpy

HEADS, KV_HEADS, HEAD, WIDTH = 2, 1, 4, 8
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "Ġ", "ab", "1", "2"]
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": 16,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": HEAD,
    "llama.rope.freq_base": 100000.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, 3, 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.padding_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def rows(count: int) -> tuple[tuple[int, int], int, bytes]:
    """A float32 matrix whose every row holds its own number."""
    values = [float(row) for row in range(count) for _ in range(WIDTH)]
    return (count, WIDTH), 0, struct.pack(f"<{len(values)}f", *values)


def ones(count: int) -> tuple[tuple[int], int, bytes]:
    return (count,), 0, struct.pack(f"<{count}f", *[1.0] * count)


TENSORS = {
    "token_embd.weight": rows(len(TOKENS)),
    "blk.0.attn_norm.weight": ones(WIDTH),
    "blk.0.attn_q.weight": rows(HEADS * HEAD),
    "blk.0.attn_k.weight": rows(KV_HEADS * HEAD),
    "blk.0.attn_v.weight": rows(KV_HEADS * HEAD),
    "output_norm.weight": ones(WIDTH),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    target = tmp_path / "model"
    target.mkdir()
    convert(write_gguf(tmp_path / "m.gguf", METADATA, TENSORS), target, "the template")
    return target


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def first_column(model: Path, name: str) -> list[float]:
    """The first value of each row of a bf16 tensor, read as safetensors says."""
    data = (model / "model.safetensors").read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    info = json.loads(data[8 : 8 + size])[name]
    assert info["dtype"] == "BF16"
    start, end = (8 + size + offset for offset in info["data_offsets"])
    bits = np.frombuffer(data[start:end], "<u2").astype(np.uint32) << 16
    return [row[0] for row in bits.view(np.float32).reshape(info["shape"]).tolist()]


def test_query_and_key_rows_go_back_to_their_rotary_order(model: Path) -> None:
    layer = "model.layers.0.self_attn"
    assert first_column(model, f"{layer}.k_proj.weight") == [0, 2, 1, 3]
    assert first_column(model, f"{layer}.q_proj.weight") == [0, 2, 1, 3, 4, 6, 5, 7]
    assert first_column(model, f"{layer}.v_proj.weight") == [0, 1, 2, 3]


def test_bfloat16_rounds_to_nearest_with_ties_to_even(tmp_path: Path) -> None:
    # One unit in the last place of bfloat16 at 1 is 2**-7.
    unit = 2.0**-7
    values = [1 + unit / 2, 1 + 1.5 * unit, 1 + 0.4 * unit, 1 + 0.6 * unit, -1.0, 0.0, 3.0, 1.0]
    tensors = {"output.weight": ((8, 1), 0, struct.pack("<8f", *values))}
    convert(write_gguf(tmp_path / "m.gguf", METADATA, tensors), tmp_path, "")
    expected = [1.0, 1 + 2 * unit, 1.0, 1 + unit, -1.0, 0.0, 3.0, 1.0]
    assert first_column(tmp_path, "lm_head.weight") == expected


def test_the_config_describes_the_model(model: Path) -> None:
    config = read_json(model / "config.json")
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] is True
    assert config["eos_token_id"] == 2
    assert (model / "chat_template.jinja").read_text(encoding="utf-8") == "the template"


def test_a_model_with_its_own_output_weights_is_not_tied(tmp_path: Path) -> None:
    tensors = TENSORS | {"output.weight": rows(len(TOKENS))}
    convert(write_gguf(tmp_path / "m.gguf", METADATA, tensors), tmp_path, "")
    assert read_json(tmp_path / "config.json")["tie_word_embeddings"] is False


def test_the_tokenizer_merges_keeps_control_tokens_whole_and_splits_digits(model: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    encoded = tokenizer.encode("<|im_start|>ab 12<|im_end|>")
    assert encoded.tokens == ["<|im_start|>", "ab", "Ġ", "1", "2", "<|im_end|>"]
    assert tokenizer.decode(encoded.ids) == "ab 12"
    assert read_json(model / "tokenizer_config.json")["eos_token"] == "<|im_end|>"


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        ({"general.architecture": "gemma3"}, {}, "only a llama model"),
        ({"tokenizer.ggml.pre": "qwen2"}, {}, "only a llama model"),
        ({}, {"blk.0.ssm_in.weight": ones(1)}, "has no tensor"),
        ({}, {"rope_freqs": ones(1)}, "has no tensor"),
    ],
)
def test_another_kind_of_model_is_refused(
    tmp_path: Path, metadata: dict[str, Any], tensors: dict[str, Any], message: str
) -> None:
    source = write_gguf(tmp_path / "m.gguf", METADATA | metadata, tensors)
    with pytest.raises(SetupError, match=message):
        convert(source, tmp_path, "")


def test_the_program_says_what_is_wrong_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, template = tmp_path / "m.gguf", tmp_path / "template"
    source.write_bytes(b"nothing of the kind" * 4)
    template.write_text("", encoding="utf-8")
    assert main([str(source), str(tmp_path), str(template)]) == 1
    assert "can't be converted" in capsys.readouterr().err
