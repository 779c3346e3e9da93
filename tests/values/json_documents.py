"""JSON documents in the manner of JSONTestSuite: valid ones, invalid ones, and those on which parsers disagree."""

from __future__ import annotations

VALID = [
    b"[[]   ]", b'[""]', b"[]", b'["a"]', b"[false]", b'[null, 1, "1", {}]', b"[null]", b"[1\n]", b" [1]",
    b"[1,null,null,null,2]", b"[2] ", b"[123e65]", b"[0e+1]", b"[0e1]", b"[ 4]",
    b"[-0.0000000000000000000000000000001]",     b"[20e1]", b"[-0]", b"[-123]", b"[-1]", b"[-0]", b"[1E22]",
    b"[1E-2]", b"[1E+2]", b"[123e45]", b"[123.456e78]",
    b"[1e-2]", b"[1e+2]", b"[123]", b"[123.456789]", b'{"asd":"sdf", "dfg":"fgh"}', b'{"asd":"sdf"}', b"{}", b'{"":0}',
    b'{"foo\\u0000bar": 42}', b'{ "min": -1.0e+28, "max": 1.0e+28 }', b'{"x":[{"id": "x"}], "id": "xxxx"}',
    b'{"a":[]}', '{"title":"\u041f\u043e"}'.encode(), b'{"title":"\\u041f\\u043e\\u043b"}', b'{\n"a": "b"\n}',
    b'["\\u0060\\u012a\\u12AB"]', b'["\\uD801\\udc37"]', b'["\\ud83d\\ude39\\ud83d\\udc8d"]',
    b'["\\"\\\\\\/\\b\\f\\n\\r\\t"]', b'["\\\\u0000"]', b'["\\""]', b'["a/*b*/c/*d//e"]', b'["\\\\a"]', b'["\\\\n"]',
    b'["\\u0012"]', b'["\\uFFFF"]', b'["asd"]', b'[ "asd"]', '["\U0010ffff"]'.encode(), '["\uffff"]'.encode(),
    b'["\\u0000"]', b'["\\u002c"]', '["\u03c0"]'.encode(), '["\U0001bfff"]'.encode(), b'["asd "]', b'" "',
    b'["\\uD834\\uDd1e"]', b'["\\u0821"]', b'["\\u0123"]', '["\u2028"]'.encode(), '["\u2029"]'.encode(),
    b'["\\u0061\\u30af\\u30EA\\u30b9"]', b'["new\\u00A0line"]', '["\u2342\u3248\u2342"]'.encode(), b'["\\u005C"]',
    b'["\\u0022"]', b'["\\uDBFF\\uDFFE"]', b'["\\uD83F\\uDFFE"]', b'["\\u200B"]', b'["\\u2064"]', b'["\\uFDD0"]',
    b'["\\uFFFE"]', '["\u20ac\U0001d11e"]'.encode(), b'["a\x7fa"]', b"false", b"42", b"-0.1", b"null", b'"asd"',
    b"true", b'""', b'["a"]\n', b"[true]", b" [] ", b"\t{ \"a\" :\r\n1 }\t", '{"\ufeff":"\ufeff"}'.encode(),
    b'{"a":{"b":{"c":[{}]}}}',
    b"[" * 90 + b"]" * 90, b'["' + b"x" * 10_000 + b'"]', b"[" + b"9" * 900 + b"]",
    b'{"__proto__":null,"constructor":1}',
]  # fmt: skip
"""Documents that every parser of JSON has to take."""

INVALID = [
    b"[1 true]", b'["": 1]', b'[""],', b"[,1]", b"[1,,2]", b'["x",,]', b'["x"]]', b'["",]', b'["x"', b"[x", b"[3[4]]",
    b"[,]", b"[-]", b"[   , \"\"]", b"[1,]", b"[1,,]", b'["\x0ba"\\f]', b"[*]", b'[""', b"[1,", b"[{}", b"[fals]",
    b"[nul]", b"[tru]", b"123\0", b"[++1234]", b"[+1]", b"[+Inf]", b"[-01]", b"[-1.0.]", b"[-2.]", b"[-NaN]", b"[.-1]",
    b"[.2e-3]", b"[0.1.2]", b"[0.3e+]", b"[0.3e]", b"[0.e1]", b"[0E+]", b"[0E]", b"[0e+]", b"[0e]", b"[1.0e+]",
    b"[1.0e-]", b"[1.0e]", b"[1 000.0]", b"[1eE2]", b"[2.e+3]", b"[2.e-3]", b"[2.e3]", b"[9.e+]", b"[Inf]",
    '[\uff11]'.encode(), b"[1+2]", b"[0x1]", b"[0x42]", b"[0e+-1]", b"[-123.123foo]",
    b"[-foo]", b"[- 1]", b"[-012]", b"[-.123]", b"[-1x]", b"[1ea]", b"[1.]", b"[.123]", b"[1.2a-3]",
    b"[1.8011670033376514H-308]", b"[012]", b'["x", truth]', b'{[: "x"}\n', b'{"x", null}', b'{"x"::"b"}',
    '{\U0001f1e8\U0001f1ed}'.encode(), b'{"a":"a" 123}', b'{key: \'value\'}', b'{"a" b}', b'{:"b"}', b'{"a" "b"}',
    b'{"a":', b'{"a"', b"{1:1}", b"{9999E9999:1}", b"{null:null,null:null}", b'{"id":0,,,,,}', b'{"id":0,}',
    b'{"a":"b"}/**/', b'{"a":"b"}/**//', b'{"a":"b"}//', b'{"a":"b"}/', b'{"a":"b",,"c":"d"}', b'{a: "b"}', b'{"a":"a',
    b'{ "foo" : "bar", "a" }', b'{"a":"b"}#', b" ", b'["\\uD800\\"]', b'["\\uD800\\u"]', b'["\\uD800\\u1"]',
    b'["\\uD800\\u1x"]', '[\u00e9]'.encode(), b'["\\x00"]', b'["\\\\\\"]', b'["\\\t"]', '["\\\U0001f300"]'.encode(),
    b'["\\"]', b'["\\u00A"]', b'["\\uD834\\uDd"]', b'["\\uD800\\uD800\\x"]', b'["\\a"]', b'["\\uqqqq"]',
    b"[\\u0020\"asd\"]", b"[\\n]", b'"', b'abc', b'["\\', b'["a\0a"]', b'["new\nline"]', b'["\t"]', b'"\\UA66D"',
    b'""x', '[\u2060]'.encode(), b"<.>", b"[<null>]", b"[1]x", b"[1]]", b'["asd]', "a\u00e5".encode(), b"[True]", b"1]",
    b'{"x": true,', b"[][]", b"]", b'{"":' + b"[{" * 60, b"", b"[", b'{"a": true} "x"', b'{"a": 1} {"b": 2}',
    b"[,", b"[{", b'["a', b'["a"', b"{",
    b"{]", b"{,", b"{[", b'{"a', b"{'a'", b'["\\{["\\{["\\{["\\{', b"*",
    b'{"a":"b"}#{}',
    b"[\\u000A\"\"]", b"[1", b"[ false, nul", b"[ true, fals", b"[ false, tru", b'{"asd":"asd"', b"[\x0c]",
    "[\u2060]".encode(), b"[a]", b"[\"x\"\x00]", b"-", b"+1", b".5", b"01", b"--1", b"nan",
    b"undefined", b"[1]//", b"/* c */[1]", b"{\"a\":1}\x00", b"(1)", b"[1;2]", b"{\"a\"=1}", b"`a`",
]  # fmt: skip
"""Documents that no parser of JSON may take."""

OPEN = [
    b"[NaN]", b"[Infinity]", b"[-Infinity]", b"{'a':0}", b"['single quote']",
    b"[123.456e-789]", b"[0.4e00669999999999999999999999999999999999999999999999999999969999999006]", b"[-1e+9999]",
    b"[1.5e+9999]", b"[-123123e100000]", b"[123123e100000]", b"[123e-10000000]", b"[-123123123123123123123123123123]",
    b"[100000000000000000000]", b"[-237462374673276894279832749832423479823246327846]", b'["\\uDADA"]',
    b'["\\uD888\\u1234"]', b'["\\uD800\\n"]', b'["\\uDd1ea"]', b'["\\uD800\\uD800"]', b'["\\ud800"]', b'["\\ud800abc"]',
    b'["\\uDd1e\\uD834"]', b'["\\uDFAA"]', b'["\xff"]', b'["\xe6\x97\xa5\xd1\x88\xfa"]', b'["\xf4\xbf\xbf\xbf"]',
    b'["\xe0\xff"]', b'["\x81"]', b'["\xfc\x83\xbf\xbf\xbf\xbf"]', b'["\xc0\xaf"]', b'["\xfc\x80\x80\x80\x80\x80"]',
    b'["\xed\xa0\x80"]', b'["\xe9"]', b"[" * 500 + b"]" * 500, b"\xef\xbb\xbf{}", b'{"a":"b","a":"c"}',
    b'{"a":"b","a":"b"}',
    b'{"a":1,"A":2}', b"[" * 2_000, b'{"":' * 1_200 + b"1" + b"}" * 1_200, b"[" + b"1" * 2_000 + b"]", b"\xef\xbb\xbf",
    "{\"a\":1}".encode("utf-16-le"), b"\xff\xfe[\0]\0",
]  # fmt: skip
"""Documents on which parsers disagree. They are deep, have huge numbers, double keys or bytes that are no text."""
