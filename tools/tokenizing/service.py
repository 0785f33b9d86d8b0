"""Answers the requests of `ebb`: each line on stdin is an object of JSON with one key, and gets one line on stdout.

  {"prepare": {...}}   prepared.prepare
  {"speak": {"tokenizer", "flag", "chat_template"}}  then {"encode": text}, {"chat": messages}, {"token": N}, {"end": null}

The answer is {"result": ...}, or {"error": a message for the user}. The end of stdin ends the program, also during a
request: what it was making is then removed.
"""

import json
import os
import queue
import shutil
import sys
import threading

from script_errors import InputError, MissingPackage, one_line, reason


class Service:
    def __init__(self):
        self.busy = set()  # folders that are removed if the program ends early
        self.speaking = None
        self.is_working = False

    def prepare(self, request):
        from .prepared import prepare

        return prepare(request, self.busy)

    def speak(self, request):
        from .speaking import Speaking
        from .tokenizer import read_template

        file = request["chat_template"]
        self.speaking = Speaking(request["tokenizer"], request["flag"], read_template(file, "--chat-template") if file else None)
        return self.speaking.about()

    def encode(self, text):
        return self.speaking.encode(text)

    def chat(self, messages):
        return self.speaking.chat(messages)

    def token(self, token):
        return self.speaking.add(token)

    def end(self, _):
        return self.speaking.end()

    def answer(self, line):
        (name, value), = json.loads(line).items()
        try:
            return {"result": getattr(self, name)(value)}
        except MissingPackage as error:
            return {"missing": error.module, "packages": error.install, "python": sys.executable}
        except InputError as error:
            return {"error": one_line(error)}
        except (OSError, MemoryError) as error:
            return {"failure": one_line(reason(error))}


def read_lines(stream, lines, service):
    for line in stream:
        lines.put(line)
    lines.put(None)
    if service.is_working:
        for folder in list(service.busy):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    service, lines = Service(), queue.Queue()
    requests = open(0, encoding="utf-8", closefd=False)
    threading.Thread(target=read_lines, args=(requests, lines, service), daemon=True).start()
    while (line := lines.get()) is not None:
        service.is_working = True
        answer = json.dumps(service.answer(line))
        service.is_working = False
        print(answer, file=answers, flush=True)
    return 0
