"""Python sources that ask a linter for more than there is: by name, and of a size that can be chosen."""

from __future__ import annotations

from collections.abc import Callable

HEAD = "from hybrid_lab import gluon, nd\nfrom hybrid_lab.gluon import nn\n"


def net(body: str, name: str = "Net", base: str = "gluon.HybridBlock", init: str = "", arguments: str = "x") -> str:
    """A HybridBlock with this body of hybrid_forward."""
    inside = "".join(f"        {line}\n" for line in body.split("\n"))
    constructor = ""
    if init:
        lines = "".join(f"        {line}\n" for line in init.split("\n"))
        constructor = f"    def __init__(self):\n        super().__init__()\n{lines}"
    return f"class {name}({base}):\n{constructor}    def hybrid_forward(self, F, {arguments}):\n{inside}"


FOUND = net("return x.shape", name="Found")
"""A class with one finding."""

EXPRESSIONS: dict[str, Callable[[int], str]] = {
    "signs": lambda n: "-" * n + "x",
    "sums": lambda n: "+".join("x" * n),
    "products of matrices": lambda n: "@".join("x" * n),
    "negations": lambda n: "not " * n + "x",
    "powers": lambda n: "x" + "**x" * n,
    "chained comparisons": lambda n: "x" + "<x" * n,
    "conjunctions": lambda n: " and ".join("x" * n),
    "attributes": lambda n: "x" + ".a" * n,
    "calls of results": lambda n: "x" + "()" * n,
    "items of items": lambda n: "x" + "[0]" * n,
    "alternatives": lambda n: "x if x else " * n + "x",
    "brackets": lambda n: "(" * n + "x" + ")" * n,
    "lists": lambda n: "[" * n + "x" + "]" * n,
    "dicts": lambda n: "{1:" * n + "x" + "}" * n,
    "lambdas": lambda n: "lambda: " * n + "x",
    "called lambdas": lambda n: "(lambda y: " * n + "x" + ")(x)" * n,
    "walruses": lambda n: "(a:=" * n + "x" + ")" * n,
    "awaits": lambda n: "await " * n + "x",
    "stars": lambda n: "[*" * n + "x" + "]" * n,
    "comprehensions": lambda n: "[" * n + "x" + " for x in x]" * n,
    "nested calls": lambda n: "F.relu(" * n + "x" + ")" * n,
    "indices": lambda n: "x[" * n + "x" + "]" * n,
    "parts of an f-string": lambda n: "f'" + "{x}" * n + "'",
    "joined strings": lambda n: "'a' " * n,
    "elements": lambda n: "[" + "1," * n + "x]",
    "names in a list": lambda n: "[" + "x," * n + "]",
    "digits": lambda n: "x[0x" + "f" * n + "]",
    "decimals": lambda n: "x * " + "9" * n,
    "quoted": lambda n: "x @ '" + "a" * n + "'",
}

BODIES: dict[str, Callable[[int], str]] = {
    "elif": lambda n: "if x:\n    pass\n" + "elif x:\n    pass\n" * n,
    "indents": lambda n: "".join(" " * i + f"while x > {i}:\n" for i in range(min(n, 90))) + " " * min(n, 90) + "x = x",
    "loops": lambda n: "".join(" " * i + f"for i{i} in x:\n" for i in range(min(n, 90))) + " " * min(n, 90) + "x = x",
    "functions in functions": lambda n: (
        "".join(" " * i + f"def f{i}(x):\n" for i in range(min(n, 90))) + " " * min(n, 90) + "return x\nf0(x)"
    ),
    "doubled tuples": lambda n: "a=(1,1)\n" + "a=(a,a)\n" * n + "return self.keep(a), x",
    "doubled lists": lambda n: "a=[x]\n" + "a=a+a\n" * n,
    "doubled stars": lambda n: "a=[x]\n" + "a=[*a,*a]\n" * n,
    "appended to themselves": lambda n: "a=[x]\n" + "a.append(a)\n" * n,
    "wrapped": lambda n: "a=[x]\n" + "a=[a]\n" * n + "return a",
    "wrapped in dicts": lambda n: "a={1:x}\n" + "a={1:a,2:a}\n" * n + "return a",
    "doubling functions": lambda n: (
        "f0=lambda y: y\n" + "".join(f"f{i}=lambda y: f{i - 1}(y)+f{i - 1}(y)\n" for i in range(1, n)) + f"f{n - 1}(x)"
    ),
    "constants": lambda n: "w; " * n,
    "changes in place": lambda n: "x += 1\n" * n,
    "names": lambda n: "".join(f"a{i} = x if x else 1\n" for i in range(n)),
    "calls with many arguments": lambda n: (
        "def f(" + ", ".join(f"q{i}=1" for i in range(n)) + "): return q0\n" + "f(x)\nf(*x)\n" * n
    ),
    "targets": lambda n: "a = " * n + "x",
    "names in one target": lambda n: ",".join(f"a{i}" for i in range(n)) + " = x",
    "handlers": lambda n: "try:\n    x = F.relu(x)\n" + "except E:\n    pass\n" * n,
    "cases": lambda n: "match x:\n" + "".join(f"    case {i} if x > {i}:\n        pass\n" for i in range(n)),
    "findings in one line": lambda n: "ä = 'ä'; " + "x.shape; " * n,
    "silenced lines": lambda n: "x.shape # hl: ignore[HL101,HL102]\n" * n,
    "stores": lambda n: "self.a = x\n" * n,
    "conversions": lambda n: "float(x); max(x, x)\n" * n,
    "calls of one function": lambda n: "g(x)\n" * n,
}

MODULES: dict[str, Callable[[int], str]] = {
    "decorators": lambda n: "@a\n" * n,
    "classes in classes": lambda n: (
        "".join(" " * i + f"class A{i}(gluon.HybridBlock):\n" for i in range(min(n, 90))) + " " * min(n, 90) + "pass\n"
    ),
    "derived": lambda n: (
        net("return x") + "".join(f"class A{i}({f'A{i - 1}' if i else 'Net'}):\n pass\n" for i in range(n))
    ),
    "diamonds": lambda n: (
        net("return x", "A0")
        + net("return x", "B0")
        + "".join(
            f"class A{i}(A{i - 1},B{i - 1}):\n pass\nclass B{i}(A{i - 1},B{i - 1}):\n pass\n" for i in range(1, n)
        )
    ),
    "bases": lambda n: f"class A({'gluon.HybridBlock,' * n}):\n pass\n",
    "heirs of a long class": lambda n: (
        "class A(gluon.HybridBlock):\n" + " pass\n" * n + "".join(f"class B{i}(A):\n pass\n" for i in range(n))
    ),
    "marks by calls": lambda n: "def g(y):\n" + "    y.shape\n" * n + net("g(x)\n" * n),
    "methods": lambda n: (
        net(f"return self.f{n - 1}(x)")
        + "    def f0(self, y): return y\n"
        + "".join(f"    def f{i}(self, y): return self.f{i - 1}(self.f{i - 1}(y))\n" for i in range(1, n))
    ),
    "branches": lambda n: "".join(f"if a: a{i} = 1\n" for i in range(n)),
    "parameters": lambda n: net(
        "return x",
        init="\n".join(f"self.p{i} = self.params.get('p{i}')" for i in range(n)),
        arguments=", ".join(f"q{i}" for i in range(n)),
    ),
    "children": lambda n: net(
        "return x", init="self.s = nn.HybridSequential()\nself.s.add(" + "nn.Lambda(), " * n + ")"
    ),
    "hidden children": lambda n: net("return x", init="\n".join(f"self.a{i} = [nn.Dense(1)]" for i in range(n))),
    "comments": lambda n: "# hl: ignore\n" * n,
    "spaces": lambda n: " " * n + "\n%a\n",
    "words": lambda n: "a." * n + "\n",
    "questions": lambda n: "?" * n + "\n",
    "magics": lambda n: "%a\n" * n,
    "cell magic": lambda n: "%%time " + "a" * n + "\n",
    "empty lines in docstrings": lambda n: (
        f"class A(gluon.HybridBlock):\n    '''{chr(10) * n}'''\n    def hybrid_forward(self, F, x):\n"
        f"        '''{chr(10) * n}'''\n        return x\n"
    ),
    "small classes": lambda n: "".join(f"class N{i}(gluon.HybridBlock):pass\n" for i in range(n)),
    "doubling classes": lambda n: "".join(net(BODIES["doubling functions"](12), f"N{i}") for i in range(min(n, 500))),
    "imports": lambda n: (
        "".join(f"from .m{i} import f{i}\n" for i in range(n)) + net("".join(f"f{i}(x)\n" for i in range(n)))
    ),
    "dict of numbers": lambda n: "a = {" + "".join(f"{i}:{i}," for i in range(n)) + "}\n",
    "open bracket": lambda n: "(" + "a,\n" * n,
    "open string": lambda n: "'''" + "a\n" * n,
    "continued lines": lambda n: "\\\n" * n,
}

ODD = {
    "NUL": FOUND + "\0",
    "lone surrogate": FOUND + "# \ud800 hl: ignore\n",
    "lone surrogate in a string": "a = '\ud800'\n" + FOUND,
    "byte order mark": "\ufeff" + FOUND,
    "two byte order marks": "\ufeff\ufeff" + FOUND,
    "control characters": "".join(map(chr, range(1, 32))) + FOUND,
    "form feeds": FOUND.replace("\n", "\n\f", 1),
    "line separators": "a = 'a\u2028b\x85\v'\n" + FOUND,
    "carriage returns": FOUND.replace("\n", "\r"),
    "mixed line ends": FOUND.replace("\n", "\r\n") + "\r\r\n",
    "unknown encoding": "# -*- coding: no-such-thing -*-\n" + FOUND,
    "another encoding": "# coding: utf-7\n" + FOUND,
    "nothing": "",
    "name of a file": "some.py",
    "long": FOUND + "#" * (1 << 19),
    "very long": FOUND + "a = 1\n" * (1 << 18),
}


def sources(size: int) -> dict[str, str]:
    """Each source of about this size: the expressions in a hybrid_forward and in a module."""
    found = {name: HEAD + net("return " + make(size)) for name, make in EXPRESSIONS.items()}
    found |= {f"module: {name}": f"{HEAD}x = 1\ny = {make(size)}\n" for name, make in EXPRESSIONS.items()}
    head = HEAD + "w = nd.zeros(3)\ndef g(y): return y.shape\n"
    found |= {name: head + net(make(size) + "\nreturn x") for name, make in BODIES.items()}
    return found | {name: HEAD + make(size) for name, make in MODULES.items()}
