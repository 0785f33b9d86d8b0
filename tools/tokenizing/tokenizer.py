"""The tokenizer of a model: its tokenizer.json, which the package `tokenizers` runs, its special tokens and its chat
templates. The package is imported in a tenth of a second. transformers, which takes some seconds, is only imported for a
tokenizer without a tokenizer.json, and for one of the hub."""

import json
import os.path

from script_errors import InputError, import_package, import_transformers, open_file

from . import chat_templates

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
TEMPLATE, MORE_TEMPLATES = "chat_template.jinja", "additional_chat_templates"


class Tokenizer:
    def __init__(self, backend, named=None, templates=None):
        """`backend`: of the package `tokenizers`. `named`: the special tokens by their names (NAMED). `templates`: the
        chat templates by their names."""
        self.backend, self.templates = backend, dict(templates or {})
        self.named = {name: text for name, text in (named or {}).items() if text is not None}
        backend.no_truncation()
        backend.no_padding()

    def __len__(self):
        """The smallest number that is larger than every token. Some tokenizers leave numbers out."""
        return 1 + max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def id_of(self, name):
        """The token of a name such as eos_token, or None."""
        return self.token(self.named[name]) if name in self.named else None

    def token(self, text):
        return self.backend.token_to_id(text)

    def special_texts(self):
        added = self.backend.get_added_tokens_decoder().values()
        return {*self.named.values(), *(token.content for token in added if token.special)}

    def encode(self, text, special=True):
        """`special`: adds the tokens that the tokenizer puts before and after a text."""
        return self.backend.encode(text, add_special_tokens=special).ids

    def encode_all(self, texts):
        """Returns the tokens of several texts, and the spans of characters from which they come."""
        return self.backend.encode_batch(texts, add_special_tokens=False)

    def decode(self, ids):
        return self.backend.decode(ids, skip_special_tokens=True)

    def template(self, tools=None):
        """The text of the chat template. Raises ValueError if none of several is the right one."""
        if tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if "default" in self.templates or len(self.templates) == 1:
            return self.templates.get("default", next(iter(self.templates.values())))
        raise ValueError(f"none of the chat templates {', '.join(sorted(self.templates))} is the default")

    def render(self, messages, tools=None, prompt=False):
        """`prompt`: adds the begin of an answer. Raises any error."""
        return self.compiled(tools).render(messages, tools, add_generation_prompt=prompt, **self.named)

    def render_marked(self, messages, tools=None):
        return self.compiled(tools).render_marked(messages, tools, add_generation_prompt=False, **self.named)

    def compiled(self, tools):
        return chat_templates.compiled(self.template(tools))


def load_tokenizer(name, flag="--tokenizer", template=None):
    """`name`: a folder, a tokenizer.json, or the name of a model on the hub. `template`: replaces the chat templates."""
    if name.endswith(".json"):
        if not os.path.exists(name):
            raise InputError(f"{flag} {name}: there is no such folder or file")
        tokenizer = Tokenizer(loaded_file(name, flag, name))
    elif os.path.exists(os.path.join(name, FILE)):
        tokenizer = loaded_folder(name, flag)
    else:
        tokenizer = loaded_by_transformers(name, flag)
    if template is not None:
        tokenizer.templates = {"default": template}
    return tokenizer


def loaded_file(path, flag, name):
    tokenizers = import_package("tokenizers", install=chat_templates.INSTALL)
    try:
        return tokenizers.Tokenizer.from_file(path)
    except Exception as error:  # the package raises plain Exception
        raise InputError(f"{flag} {name}: cannot load {path}: {error}") from error


def loaded_folder(folder, flag):
    backend = loaded_file(os.path.join(folder, FILE), flag, folder)
    settings = {**read_json(os.path.join(folder, "special_tokens_map.json")), **read_json(os.path.join(folder, SETTINGS))}
    named = {name: text_of(settings.get(name)) for name in NAMED}
    add_missing(backend, settings, named)
    return Tokenizer(backend, named, read_templates(folder, settings))


def text_of(token):
    """A token is given as its text, or with properties."""
    return token.get("content") if isinstance(token, dict) else token


def add_missing(backend, settings, named):
    """Adds what tokenizer_config.json has and tokenizer.json has not, in the order of their numbers."""
    import tokenizers

    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    declared = settings.get("added_tokens_decoder") or {}
    for _, token in sorted(declared.items(), key=lambda item: int(item[0])):
        if token["content"] not in known:
            fields = {key: token[key] for key in ("single_word", "lstrip", "rstrip", "normalized", "special")
                      if key in token}
            backend.add_tokens([tokenizers.AddedToken(token["content"], **fields)])
            known.add(token["content"])
    others = [settings.get(key) for key in ("additional_special_tokens", "extra_special_tokens")]
    others = [text_of(token) for group in others for token in (group.values() if isinstance(group, dict) else group or ())]
    missing = [text for text in (*named.values(), *others) if text and text not in known]
    backend.add_special_tokens(list(dict.fromkeys(missing)))


def read_json(path):
    """Returns the object of a file; empty if there is no such file."""
    if not os.path.exists(path):
        return {}
    with open_file(path) as file:
        try:
            found = json.load(file)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: cannot load it: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: cannot load it: it must be an object")
    return found


def read_template(path, flag=None):
    """`flag`: the flag that names the file, for messages."""
    with open_file(path, flag) as file:
        try:
            return file.read().decode()
        except UnicodeDecodeError as error:
            name = " ".join(filter(None, (flag, path)))
            raise InputError(f"{name}: byte {error.start} is not UTF-8; allowed is a template of Jinja") from error


def read_templates(folder, settings):
    """Files come before settings."""
    found = settings.get("chat_template") or read_json(os.path.join(folder, "chat_template.json")).get("chat_template")
    if isinstance(found, list):
        templates = {entry["name"]: entry["template"] for entry in found}
    else:
        templates = {"default": found} if found else {}
    more = os.path.join(folder, MORE_TEMPLATES)
    for name in sorted(os.listdir(more)) if os.path.isdir(more) else ():
        if name.endswith(".jinja"):
            templates[name[:-len(".jinja")]] = read_template(os.path.join(more, name))
    if os.path.exists(os.path.join(folder, TEMPLATE)):
        templates["default"] = read_template(os.path.join(folder, TEMPLATE))
    return templates


def loaded_by_transformers(name, flag):
    """For vocabularies in other files than tokenizer.json, and for models of the hub."""
    try:
        transformers = import_transformers()
    except InputError as error:
        where = "has no tokenizer.json" if os.path.isdir(name) else "is no folder with a tokenizer.json"
        raise InputError(f"{flag} {name}: it {where}, and only transformers reads others: {error}") from error
    try:
        found = transformers.AutoTokenizer.from_pretrained(name)
    except Exception as error:  # the libraries below transformers raise any error for a damaged file
        raise InputError(f"{flag} {name}: {no_tokenizer(name, error)}") from error
    if not getattr(found, "is_fast", False):
        raise InputError(f"{flag} {name}: it does not tell which characters belong to a token; give one with a "
                         "tokenizer.json")
    templates = found.chat_template or {}
    named = {key: str(text) for key, text in found.special_tokens_map.items() if key in NAMED}
    return Tokenizer(found.backend_tokenizer, named, {"default": templates} if isinstance(templates, str) else templates)


def no_tokenizer(name, error):
    if os.path.exists(name):
        return f"transformers cannot load a tokenizer from it: {error}"
    return f"there is no such folder, and transformers finds no model of this name: {error}"
