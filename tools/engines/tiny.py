"""Run in an environment with tokenizers, gguf and numpy: writes the tiny models into a folder.

    python tiny.py FOLDER '{"tiny-a.gguf": 1}'

FOLDER/corpus.json has the lines that the tokenizer learns from. FOLDER/tiny gets a tokenizer and a configuration, and
each named file becomes a GGUF model of its own seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
SPECIAL = ["<unk>", "<s>", "</s>"]
CONTEXT = 2048
LAYERS, WIDTH, HEADS, INNER = 6, 256, 4, 512
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def trained(lines: list[str]) -> Tokenizer:
    """A byte-level BPE tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def write_folder(tokenizer: Tokenizer, folder: Path) -> None:
    """What engines read of a model before its weights: tokenizer, sizes, chat template."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": WIDTH // HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        **ids,
    }
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    for name, content in (("config", config), ("generation_config", ids), ("tokenizer_config", words)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1, sort_keys=True))


def write_gguf(tokenizer: Tokenizer, target: Path, seed: int) -> None:
    """The same architecture with random weights, in llama.cpp's format."""
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer = gguf.GGUFWriter(str(target), "llama")
    writer.add_name(target.stem)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    kinds = (gguf.TokenType.CONTROL, gguf.TokenType.NORMAL)
    writer.add_token_types([kinds[index >= len(SPECIAL)] for index in range(len(tokens))])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.06).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    writer.add_tensor("token_embd.weight", weights(len(tokens), WIDTH))
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", weights(len(tokens), WIDTH))
    for layer in range(LAYERS):
        for part in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{part}.weight", ones)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"blk.{layer}.{part}.weight", weights(WIDTH, WIDTH))
        for part in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"blk.{layer}.{part}.weight", weights(INNER, WIDTH))
        writer.add_tensor(f"blk.{layer}.ffn_down.weight", weights(WIDTH, INNER))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(folder: Path, seeds: dict[str, int]) -> None:
    tokenizer = trained(json.loads((folder / "corpus.json").read_text()))
    write_folder(tokenizer, folder / "tiny")
    for name, seed in seeds.items():
        write_gguf(tokenizer, folder / name, seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
