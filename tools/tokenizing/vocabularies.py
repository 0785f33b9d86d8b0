"""Trains a tokenizer on texts: a byte-level byte-pair encoding as that of GPT-2, so every text has tokens."""

import json
import os

from script_errors import InputError, import_package

from . import sources
from .chat_templates import INSTALL
from .tokenizer import FILE, SETTINGS, TEMPLATE

END, BEGIN_MESSAGE, END_MESSAGE = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
NUM_BYTES = 256
CHAT = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def texts_of(files, notices):
    """Yields the texts, and those of the messages of conversations."""
    for document in sources.documents(files, None, notices):
        if isinstance(document, sources.Text):
            yield from document.blocks
        else:
            yield from filter(None, (message["content"] for message in document.messages))


def train(files, size, has_conversations, folder, notices):
    """Writes the files of a tokenizer of at most `size` tokens, and returns their number. A short text has fewer."""
    tokenizers = import_package("tokenizers", install=INSTALL)
    special = [END, BEGIN_MESSAGE, END_MESSAGE] if has_conversations else [END]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts_of(files, notices), trainer)
    if tokenizer.get_vocab_size() == NUM_BYTES + len(special):
        raise InputError(f"--tokenizer train:{size}: there is no text in the data, or too little to find pairs of bytes; "
                         "give more data, or a preset over bytes")
    tokenizer.save(os.path.join(folder, FILE))
    end = END_MESSAGE if has_conversations else END
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "pad_token": END,
                "clean_up_tokenization_spaces": False}
    write(os.path.join(folder, SETTINGS), json.dumps(settings, indent=2) + "\n")
    ends = {"eos_token_id": tokenizer.token_to_id(end), "pad_token_id": tokenizer.token_to_id(END)}
    write(os.path.join(folder, "generation_config.json"), json.dumps(ends, indent=2) + "\n")
    if has_conversations:
        write(os.path.join(folder, TEMPLATE), CHAT)
    return tokenizer.get_vocab_size()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
