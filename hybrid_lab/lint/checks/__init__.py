"""The checks of the rules: one function per rule, `@check("HL101")`, in files by topic.

A check gets a syntax node and the Walk that has evaluated it, and yields a mark for each place that breaks the rule.
The rule's words are in its page, `diagnostics/rules/HL101.md`.
"""

from . import constants, control, effects, held, host, indexing, mutation, portability, reads, structure, unknown
