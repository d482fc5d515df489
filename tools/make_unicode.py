#!/usr/bin/env python3
"""Writes unicode_ranges.inc, unicode_exceptions.inc and unicode_properties.inc of src/tokenizer.

The first has the general category of every code point, as ranges. The second has the code points at which the parts of
the `tokenizers` package disagree with that version of Unicode, because each knows another one: their ids can only be
matched by disagreeing alike. The third has the properties that its regular expressions know beside categories, such as
scripts. All are facts, found by asking about every code point.

Needs the PyPI packages unicodedata2 (in the version of Unicode that is wanted, that of the regular expressions of
`tokenizers`) and tokenizers, and the library utf8proc. Run after a change of one of them: tools/make_unicode.py
"""

import ctypes
import pathlib
import sys

import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

WANTED = "16.0.0"
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src/tokenizer"
if unicodedata2.unidata_version != WANTED:
    sys.exit(f"make_unicode: unicodedata2 knows Unicode {unicodedata2.unidata_version}; install unicodedata2=={WANTED}")

utf8proc = ctypes.CDLL("libutf8proc.so.2")
CODES = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]


def category(code):
    return unicodedata2.category(chr(code))


def wrapped(entries):
    lines, line = [], ""
    for entry in entries:
        if len(line) + len(entry) > 108:
            lines.append(line.rstrip())
            line = ""
        line += entry
    return "\n".join(lines + [line.rstrip()]) + "\n"


def write_ranges():
    ranges = []
    for code in range(0x110000):
        if not ranges or ranges[-1][1] != category(code):
            ranges.append((code, category(code)))
    head = f"// Unicode {WANTED}: where each run of code points of one general category begins. Written by tools/make_unicode.py.\n"
    (FOLDER / "unicode_ranges.inc").write_text(head + wrapped(f"{{0x{code:x}, {kind}}}, " for code, kind in ranges))


def runs(codes):
    found = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def removed_by(normalizer):
    """The code points that vanish after a letter."""
    return {code for code in CODES if normalizer.normalize_str("a" + chr(code)) == "a"}


def punctuation():
    kept, split = set(), pre_tokenizers.Punctuation("removed")
    for start in range(0, len(CODES), 2000):
        block = CODES[start : start + 2000]
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, block))):
            kept.update(block[begin:end])
    return set(CODES) - kept


def bert(**on):
    return normalizers.BertNormalizer(**({"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False} | on))


def undecomposed(form):
    normal = getattr(normalizers, form)()
    return {code for code in CODES if normal.normalize_str(chr(code)) != unicodedata2.normalize(form, chr(code))}


def uncombined():
    """Marks that keep their place beside marks of any other class: the package does not know that they are marks."""
    normal = normalizers.NFD()
    return {code for code in CODES if unicodedata2.combining(chr(code)) and all(normal.normalize_str(text) == text for text in ("\u0345" + chr(code), chr(code) + "\u0334"))}


def write_exceptions():
    lists = {
        "kPunctuation": {c for c in CODES if c >= 0x80 and category(c)[0] == "P"} ^ {c for c in punctuation() if c >= 0x80},
        "kMark": {c for c in CODES if category(c)[0] == "M"} ^ removed_by(normalizers.StripAccents()),
        "kNonspacingMark": {c for c in CODES if category(c) == "Mn"} ^ removed_by(bert(strip_accents=True)),
        "kControl": {c for c in CODES if category(c) in ("Cc", "Cf", "Co") and chr(c) not in "\t\n\r"} ^ removed_by(bert(clean_text=True)),
        "kUndecomposed": undecomposed("NFD") | undecomposed("NFKD") | uncombined(),
    }
    text = f"// Where `tokenizers` {tokenizers.__version__} disagrees with Unicode {WANTED}. Written by tools/make_unicode.py.\n"
    for name, codes in lists.items():
        text += f"constexpr CodeRun {name}Exceptions[] = {{\n" + wrapped(f"{{0x{a:x}, 0x{b:x}}}, " for a, b in runs(sorted(codes))) + "};\n"
    lower = normalizers.Lowercase()
    pairs = [(c, lower.normalize_str(chr(c))) for c in CODES]
    text += "constexpr CodeRun kLowerExceptions[] = {  // a capital and its small letter\n"
    text += wrapped(f"{{0x{c:x}, 0x{ord(small):x}}}, " for c, small in pairs if len(small) == 1 and utf8proc.utf8proc_tolower(c) != ord(small))
    text += "};\n"
    (FOLDER / "unicode_exceptions.inc").write_text(text)


# Those that follow from categories are in src/tokenizer/code_set.cc.
PROPERTIES = """
Alpha Lower Upper Emoji Emoji_Modifier Emoji_Modifier_Base Emoji_Presentation Extended_Pictographic Ideographic Adlam Ahom
Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo Brahmi Braille
Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot
Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay
Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo
Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada
Katakana Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A
Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek
Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari
New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian
Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene
Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala
Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil
Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi Wancho Warang_Citi
Yezidi Yi Zanabazar_Square
""".split()


def write_properties():
    # One text for all questions: pieces that match are removed, what is left does not.
    text = "".join(map(chr, [0] + CODES))
    blocks = [text[start : start + 20000] for start in range(0, len(text), 20000)]
    out = f"// Properties as the regular expressions of `tokenizers` {tokenizers.__version__} know them. Written by tools/make_unicode.py.\n"
    ranges, table = [], []
    for name in sorted(PROPERTIES, key=str.lower):
        split = pre_tokenizers.Split(Regex(f"\\p{{^{name}}}+"), "removed")
        codes = [ord(c) for block in blocks for piece, _ in split.pre_tokenize_str(block) for c in piece]
        found = runs(codes)
        table.append((name.lower().replace("_", ""), len(ranges), len(found)))
        ranges += found
    out += "constexpr CodeRun kPropertyRuns[] = {\n" + wrapped(f"{{0x{a:x}, 0x{b:x}}}, " for a, b in ranges) + "};\n"
    out += "constexpr Property kProperties[] = {  // a name without capitals and underscores, its first run, how many\n"
    out += wrapped(f'{{"{name}", {first}, {count}}}, ' for name, first, count in table) + "};\n"
    (FOLDER / "unicode_properties.inc").write_text(out)


write_ranges()
write_exceptions()
write_properties()
