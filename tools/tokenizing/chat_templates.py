"""Compiles chat templates, as transformers does (utils/chat_template_utils.py): templates of a model's folder are code
of strangers, so they run in the sandbox of jinja2, with the functions and the tag {% generation %} that they expect."""

import datetime
import functools
import json
import re
import sys

from script_errors import InputError, import_package

INSTALL = "tokenizers jinja2 numpy"
SAFE = (3, 1, 6)  # the version of jinja2 that transformers requires
THOUGHTS = ("reasoning_content", "thinking", "reasoning")  # names under which a message has its reasoning


class Template:
    """The text of a template with some variables. `render` may raise any error."""

    def __init__(self, text):
        self.environment = make_environment()
        self.template = self.environment.from_string(text)

    def render(self, messages, tools, **variables):
        return self.template.render(messages=plain(messages), tools=tools, documents=None, **variables)

    def render_marked(self, messages, tools, **variables):
        """Returns the text, and the spans (first, last) of the characters that {% generation %} encloses."""
        blocks, spans = [], []
        self.environment.marked = blocks, spans
        try:
            for block in self.template.generate(messages=plain(messages), tools=tools, documents=None, **variables):
                blocks.append(block)
        finally:
            self.environment.marked = None
        return "".join(blocks), spans


@functools.lru_cache(maxsize=16)
def compiled(text):
    return Template(text)


def plain(messages):
    """Leaves out what is None, and gives the reasoning of a message the names that templates read."""
    found = []
    for message in messages:
        message = {key: value for key, value in message.items() if value is not None}
        reasoning = next((message[key] for key in THOUGHTS if key in message), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        found.append(message)
    return found


def import_jinja():
    jinja2 = import_package("jinja2", install=INSTALL)
    version = tuple(int(part) for part in re.findall(r"\d+", jinja2.__version__)[:3])
    if version < SAFE:
        raise InputError(f"jinja2 {jinja2.__version__} has known ways out of its sandbox, and chat templates are code of "
                         f"strangers: run '{sys.executable}' -m pip install -U jinja2 ({'.'.join(map(str, SAFE))} or later)")
    return jinja2


def plain_dict(*pairs, **values):
    """Takes the place of the class `dict`, through whose attributes a template would reach others."""
    return dict(*pairs, **values)


def make_environment():
    jinja2 = import_jinja()
    import jinja2.ext
    import jinja2.sandbox

    class Namespace(jinja2.utils.Namespace):
        """Has no names that begin with an underscore, which are those of Python's own attributes."""

        def __init__(*arguments, **values):
            self, *pairs = arguments
            jinja2.utils.Namespace.__init__(self, checked_names(dict(*pairs, **values)))

        def __setitem__(self, name, value):
            jinja2.utils.Namespace.__setitem__(self, *next(iter(checked_names({name: value}).items())))

    def checked_names(values):
        for name in values:
            if str(name).startswith("_"):
                raise jinja2.exceptions.SecurityError(f"a namespace cannot have the name {name!r}")
        return values

    class Generation(jinja2.ext.Extension):
        """The tag {% generation %}: notes which characters it encloses."""
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

        def _note(self, caller):
            text = caller()
            if self.environment.marked is not None:
                blocks, spans = self.environment.marked
                first = sum(map(len, blocks))
                spans.append((first, first + len(text)))
            return text

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        """The filter of jinja2 would escape characters of HTML."""
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.marked = None
    environment.filters["tojson"] = to_json
    environment.globals["dict"] = plain_dict
    environment.globals["namespace"] = Namespace
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment
