#!/usr/bin/env python3
"""Writes tests/data/jinja_cases.json: small templates as jinja2 renders them, for tests/text/test_jinja.cpp.

    pip install transformers==5.24.0 jinja2==3.1.6
    tools/make_jinja_cases.py            # writes the file
    tools/make_jinja_cases.py --check    # exit code 1 if it is not what it would write

Each line of LINES is a template; where it has expressions only, each of them is another. All see VARIABLES. The
environment is the one of transformers. The result is the text, or null where jinja2 raises.
"""

import argparse
import datetime
import json
import pathlib
import re
import sys

from transformers.utils import chat_template_utils

PATH = pathlib.Path(__file__).resolve().parent.parent / "tests/data/jinja_cases.json"
NOW = datetime.datetime(2026, 7, 5, 13, 4, 9)

VARIABLES = {
    "s": 'Hello, w\xf6rld! \u01c6 \ufb01 \u0391\u03a3 \u0391\u03a3\u0391 \u0130\xdf',
    "e": '',
    "n": 5,
    "neg": -7,
    "f": 2.5,
    "big": 1e+20,
    "small": 1e-07,
    "t": True,
    "no": None,
    "l": [3, 1, 2],
    "ls": ['b', 'A', 'c', 'a'],
    "d": {'b': 1, 'a': {'x': [1, 2, {'y': 'z'}]}, 'items': 'shadow', 'C': None},
    "ld": [{'n': 'x', 'v': 2, 'g': 'A'}, {'n': 'y', 'v': 1, 'g': 'a'}, {'n': 'z', 'v': 3, 'g': 'b'}],
    "nl": 'a\n b\n\nc\n',
    "q": 'it\'s "q" \\ \t\x01\xe9\u200b\U0001f600\xad',
    "el": [],
    "ed": {},
    "text": '  padded\u3000 ',
    "nested": [[1, 'a'], [2, 'b']],
    "html": '<a href="x">&\'</a>',
    "mixed": [1, 2.0, True, None, 's', [1], {'k': 'v'}],
    "csv": 'a,b,,c',
    "digits": '0042',
    "ints": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19],
}

LINES = r'''
{{ s|upper }}|{{ s|lower }}|{{ s|title }}|{{ s|capitalize }}|{{ s.title() }}|{{ s.swapcase() }}|{{ s.capitalize() }}
{{ 'hello-world (foo) [bar] <baz> {x} it\'s o_k'|title }}|{{ "it's they're x1y".title() }}
{{ s|length }} {{ s[0] }} {{ s[-1] }} {{ s[1:5] }} {{ s[::-1] }} {{ s[::2] }} {{ s[-3:] }} {{ s[5:2] }} {{ s[100:] }}
{{ s[-100:3] }} {{ s[10:2:-3] }}
{{ l[1:] }} {{ l[::-1] }} {{ l[-1] }} {{ l[7] }} {{ l['x'] }} {{ l[5:1:-1] }} {{ (1,2,3)[:2] }} {{ ints[::3] }}
{{ ints[-2:0:-4] }}
{{ 7 % 3 }} {{ -7 % -3 }} {{ 6 % -3 }} {{ 0 % -3 }} {{ 7 % -1 }} {{ 5 % 0 }}
{{ 'aab' in 'aaaab' }} {{ ('ab' * 20 ~ 'c') in 'ab' * 30 ~ 'c' }} {{ ('ab' * 30).find('ab' * 9) }} {{ ('ab' * 30).rfind('ab' * 9) }}
{{ ('xabcabcabcabcabcabcy' * 3).count('abcabcabcabcabcabc') }} {{ ('ab' * 30).count('ab' * 9) }} {{ ('ab' * 30).replace('ab' * 9, '-') }}
{{ ('ab' * 30).split('ab' * 9) }} {{ ('ab' * 30).rsplit('ab' * 9, 2) }} {{ ('ab' * 30).partition('ba' * 9) }} {{ ('ab' * 30).rpartition('ba' * 9) }}
{{ 1/2 }} {{ 4/2 }} {{ 7//2 }} {{ -7//2 }} {{ 7%3 }} {{ -7%3 }} {{ 7%-3 }} {{ 2**10 }} {{ 2**-1 }} {{ 2.0**3 }}
{{ 7.5//2 }} {{ -7.5%2 }} {{ 1e3 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 100000.0 }} {{ 123456789.123 }}
{{ 1e22 }} {{ -0.0 }} {{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }}
{{ 2**3**2 }} {{ -2**2 }} {{ 1+2*3-4/2 }} {{ (1+2)*3 }} {{ 10 - 3 - 2 }} {{ 1 ~ 2 ~ 'x' }} {{ 1 + 2 ~ 3 + 4 }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ 'a' == 1 }}
{{ none == false }} {{ 1 != 2 }} {{ not 1 == 2 }} {{ 3 in [1,2,3] }} {{ 'x' not in 'abc' }} {{ 'a' in {'a':1} }}
{{ 1 in (1,2) }}
{{ 1 and 2 }} {{ 0 or 'x' }} {{ none or false }} {{ not none }} {{ '' and 1 }} {{ 1 if false }}
{{ 'a' if n > 3 else 'b' }} {{ ('a' if 0 else 'b') if 1 else 'c' }}
{{ [1,'a',none,true,2.0,[1],{'k':'v'},(1,),()] }} {{ {'a':1,2:'b',none:true,1.5:[]} }} {{ q }} {{ [q] }}
{{ ["it's"] }} {{ ['"'] }} {{ mixed }}
{{ undefined_var }} {{ undefined_var is defined }} {{ d.nope }} {{ d.nope is undefined }} {{ d['nope']|default('x') }}
{{ undefined_var|default }} {{ ''|default('y', true) }} {{ ''|d('y') }} {{ none|default('z') }}
{{ undefined_var.foo }}
{{ undefined_var['foo'] }}
{{ d.nope.foo }}
{{ undefined_var + 1 }}
{{ undefined_var() }}
{{ undefined_var|length }} {{ undefined_var|list }} {{ undefined_var|join }} {{ undefined_var|upper }}
{{ 'a' in undefined_var }} {{ undefined_var == undefined_var2 }} {{ undefined_var == none }}
{{ undefined_var|tojson }}
{{ undefined_var < 1 }}
{{ undefined_var|int }}
{{ -undefined_var }}
{{ d['items'] }} {{ d.items()|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.get('b') }} {{ d.get('zz') }}
{{ d.get('zz', 4) }} {{ d.a.x[2].y }} {{ d['a']['x'][0] }} {{ d.items() }} {{ d.keys() }}
{{ d|items|list }} {{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(reverse=true) }}
{{ {'a':3,'b':1}|dictsort(by='value') }} {{ d|length }} {{ d|list }} {{ d|first }} {{ d.__class__ }}
{{ d.pop is defined }}
{{ d.pop('b') }}
{{ l.append(1) }}
{{ d.update({'a':1}) }}
{{ l|sort }} {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ l|sort(true) }}
{{ ld|sort(attribute='v')|map(attribute='n')|list }}
{{ ld|sort(attribute='g,n', reverse=true)|map(attribute='n')|join(',') }}
{{ [1,'a']|sort }}
{{ l|min }} {{ l|max }} {{ ls|min }} {{ ls|max }} {{ l|sum }} {{ ld|sum(attribute='v') }} {{ l|sum(start=10) }}
{{ el|min }} {{ ld|max(attribute='v') }} {{ [0.1,0.2,0.3]|sum }}
{{ l|first }} {{ l|last }} {{ el|first }} {{ s|first }} {{ s|last }} {{ l|reverse|list }} {{ s|reverse }}
{{ ls|unique|list }} {{ [1,1.0,true,2]|unique|list }} {{ ls|unique(true)|list }}
{{ l|join }} {{ l|join(', ') }} {{ ld|join('-', attribute='n') }} {{ [none,true,1.5]|join('|') }} {{ nested|join }}
{{ ints|batch(6)|list }} {{ ints|batch(6,'x')|list }} {{ ints|slice(6)|list }} {{ ints|slice(6,'x')|list }} {{ ld|groupby('g') }} {% for g in ld|groupby('g') %}{{ g.grouper }}:{{ g.list|length }};{% endfor %} {{ ld|groupby('g',case_sensitive=true)|map(attribute=0)|list }} {{ ld|groupby('zz', default='q') }}
{{ ld|map(attribute='n')|list }} {{ ld|map(attribute='q', default='?')|list }} {{ ls|map('upper')|list }}
{{ ls|map('replace','a','b')|list }} {{ nested|map('first')|list }} {{ nested|map(attribute=1)|list }}
{{ [{'a':{'b':5}}
{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ mixed|select|list }}
{{ ld|selectattr('v','gt',1)|map(attribute='n')|list }} {{ ld|rejectattr('v','eq',1)|list|length }}
{{ ld|selectattr('n')|list|length }} {{ ld|selectattr('zz','defined')|list }} {{ l|select('in',[1,2])|list }}
{{ l|select('divisibleby', 3)|list }} {{ l|select('>', 1)|list }}
{{ 3.7|int }} {{ '42'|int }} {{ '42.9'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '0x1f'|int(base=16) }}
{{ 'ff'|int(0,16) }} {{ none|int }} {{ true|int }} {{ ' 12 '|int }} {{ '1_000'|int }} {{ '-5'|int }} {{ '1e3'|int }}
{{ l|int(3) }}
{{ '1.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ 'inf'|float }} {{ 'nan'|float }} {{ '1e5'|float }}
{{ ' .5 '|float }} {{ '5.'|float }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 1234.5|round(-2) }} {{ 2.1|round(0,'ceil') }}
{{ 2.9|round(method='floor') }} {{ 5|round }} {{ 15|round(-1) }} {{ 25|round(-1) }} {{ -2.5|round }}
{{ 1.005|round(2) }} {{ 2.25|round(1,'ceil') }}
{{ -5|abs }} {{ 5.5|abs }} {{ neg|abs }}
{{ mixed|tojson }} {{ q|tojson }} {{ d|tojson }} {{ d|tojson(indent=2) }} {{ d|tojson(indent=4,sort_keys=true) }}
{{ el|tojson(indent=2) }} {{ ed|tojson(indent=2) }} {{ [[],{}]|tojson(indent=1) }} {{ s|tojson(ensure_ascii=true) }}
{{ '😀'|tojson(true) }} {{ l|tojson(separators=(',',':')) }} {{ [1.0,1e100,-0.0,1e-10]|tojson }}
{{ {1:2,none:3,true:4,1.5:5}|tojson }} {{ l|tojson(indent='--') }} {{ html|tojson }} {{ (1,2)|tojson }}
{{ l|tojson(indent=0) }} {{ '\x7f\x80\u2028'|tojson }}
{{ d.keys()|tojson }}
{{ range(3)|tojson }}
{{ l|map('string')|tojson }}
{{ {(1,2):3}|tojson }}
{{ text|trim }} {{ 'xxaxx'|trim('x') }} {{ 'xyaxy'.strip('yx') }} {{ text.lstrip() }} {{ text.rstrip() }}
{{ '\u200ba\u200b'|trim }} {{ 'ééaé'.rstrip('é') }} {{ 5|trim }} {{ none|trim }}
{{ csv.split(',') }} {{ csv.split(',',1) }} {{ csv.rsplit(',',1) }} {{ ' a  b c '.split() }}
{{ ' a  b c '.split(none,1) }} {{ ' a  b c '.rsplit(none,1) }} {{ csv.split('x') }} {{ ''.split(',') }}
{{ ''.split() }} {{ 'a<sep>b'.split('<sep>')[-1] }} {{ csv.split(',', maxsplit=2) }} {{ ' a b '.rsplit() }}
{{ 'abab'.rsplit('ab') }} {{ csv.partition(',') }} {{ csv.rpartition(',') }} {{ csv.partition('zz') }}
{{ csv.rpartition('zz') }}
{{ csv.split('') }}
{{ nl.splitlines() }} {{ nl.splitlines(true) }} {{ 'a\r\nb\rc\x0bd\u2028e\x1cf'.splitlines() }}
{{ s.startswith('He') }} {{ s.startswith(('x','H')) }} {{ s.endswith('ß') }} {{ s.startswith('ello',1) }}
{{ s.endswith('lo',0,5) }} {{ s.startswith('') }} {{ s.startswith('',100) }}
{{ s.find('o') }} {{ s.rfind('w') }} {{ s.find('zz') }} {{ s.index('ö') }} {{ s.count('l') }} {{ s.count('') }}
{{ s.find('l',4) }} {{ s.find('l',-3) }} {{ s.find('l',0,3) }} {{ 'aaa'.count('aa') }} {{ s.rindex('l') }}
{{ s.index('zz') }}
{{ s.replace('l','L') }} {{ s.replace('l','L',1) }} {{ 'aaa'.replace('','-') }} {{ 'aé'.replace('','-',2) }}
{{ s|replace('l','') }} {{ 'aaa'|replace('a','b',2) }} {{ 123|replace(2,'x') }} {{ ''.replace('','x') }}
{{ 'abc'.removeprefix('ab') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removesuffix('x') }} {{ 'abc'.center(9,'*') }}
{{ 'abc'.center(10) }} {{ 'ab'.center(5,'*') }} {{ 'ab'.center(7,'*') }} {{ 'abc'.center(6,'*') }}
{{ 'x'.ljust(4,'.') }} {{ 'x'.rjust(4) }} {{ '-5'.zfill(5) }} {{ 'a\tb'.expandtabs(4) }} {{ 'ab'|center(7) }}
{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ '½'.isnumeric() }}
{{ ' \t'.isspace() }} {{ 'ABC'.isupper() }} {{ 'aB'.islower() }} {{ 'Abc Def'.istitle() }} {{ 'é'.isascii() }}
{{ 'a\n'.isprintable() }} {{ 'x1'.isidentifier() }} {{ '1x'.isidentifier() }} {{ '²'.isdigit() }}
{{ '١'.isdecimal() }}
{{ ','.join(ls) }} {{ ''.join(['a','b']) }} {{ '-'.join('abc') }} {{ ','.join({'a':1,'b':2}) }}
{{ ','.join([1,2]) }}
{{ 'a%sb%d' % ('x', 5) }}
{{ '%5.2f|%-6s|%06d|%x|%X|%o|%e|%g|%%|%r|%c' % (3.14159,'ab',42,255,255,8,12345.678,0.0001,'q','z') if false else '%5.2f|%-6s|%06d|%x|%X|%o|%e|%g|%%|%r' % (3.14159,'ab',42,255,255,8,12345.678,0.0001,'q') }}
{{ '%s' % l }} {{ '%(a)s-%(b)05.1f' % {'a':1,'b':2.25} }} {{ '%+d % d' % (5,6) }} {{ '%s and %s'|format('a', 2) }}
{{ '%(x)s'|format(x='y') }} {{ '%.3s|' % 'abcdef' }} {{ '%5s|%-5s|' % ('é','é') }} {{ '%.3d' % 5 }} {{ '%i' % 5.9 }}
{{ '%*d' % (5, 42) }} {{ '%#x' % 255 }}
{{ '%d' % 'x' }}
{{ '%s %s' % ('a',) }}
{{ '%s' % ('a','b') }}
{{ '{} {}'.format('a', 1) }} {{ '{0}{1}{0}'.format('a','b') }} {{ '{x}-{y.z}'.format(x=1,y={'z':2}) }}
{{ '{:>8}|{:<8}|{:^8}|{:*^9}'.format('a','b','c','d') }}
{{ '{:05d} {:+d} {:,} {:x} {:#x} {:b}'.format(42,5,1234567,255,255,5) }}
{{ '{:.2f} {:10.3f} {:e} {:g} {:%} {:.1%}'.format(3.14159,2.5,12345.6,0.00001,0.5,0.256) }}
{{ '{!r} {!s}'.format('q','q') }} {{ '{{}} {{ '{0[a]}'.format({'a':5}) }} {{ '{:{w}} {{ '{}'.format(none) }}
{{ '{}'.format(1.0) }} {{ '{:.3}'.format('abcdef') }} {{ '{:,.2f}'.format(1234567.891) }} {{ '{:_}'.format(1234567) }}
{{ '{0[1]}'.format(['a','b']) }} {{ '{:=+6d}'.format(5) }} {{ '{:c}'.format(65) if false }} {{ '{:d}'.format(true) }}
{{ '{:s}'.format('a') }}
{{ '{:c}{:5c}|{:05c}|{:<3c}|{:c}'.format(65, 66, 67, 233, 128512) }} {{ '{:+c}'.format(65) }} {{ '{:c}'.format(-1) }}
{{ '{:n} {:n} {:.3n} {:n} {:#n}'.format(1234567.5, 0.5, 12345.0, 1234, 1.0) }} {{ '{:,n}'.format(5) }}
{{ '{:010,} {:06,} {:08,} {:010,} {:+012,d}'.format(1234, 1234, 1234, -1234.5, 1234) }} {{ '{:,x}'.format(5) }}
{{ '{:010_x} {:#012_x} {:08_b} {:09_b} {:_b}'.format(65535, 65535, 5, 5, 255) }} {{ '{:_c}'.format(5) }}
{{ '{:012,.1f} {:010,.2e} {:010,} {:06,} {:,%}'.format(1234, 1234.5, 1e22, 0.5, 12.5) }} {{ '{:,}'.format('x') }}
{{ '{:<05} {:^05} {:>05} {:*<05} {:05}'.format(1, 1, 'x', 1, 'x') }} {{ '{:0=5}'.format('x') }} {{ '{:=05}'.format('x') }}
{{ '{:.1} {:.2} {:.3} {:.1} {:.2} {:.3}'.format(0.0, 10.0, 10.0, 5.0, 99.9, 0.0001) }} {{ '{:+}'.format('x') }}
{{ '{:#g} {:#.0f} {:#.0e} {:#.0%} {:#.3g} {:#d}'.format(1.0, 1.0, 1.0, 1.0, 1.0, 5) }} {{ '{:#}'.format('x') }}
{{ '{!a:>10} {!a} {!a}'.format('\xe9', ['\xe9', '\u0100'], '\U0001f600') }} {{ '%a %a' % ('\xe9\u0100', q) }}
{{ '%+s %#s %05s|%#g %#.0f' % ('x', 'x', 'x', 1.0, 1.0) }} {{ '%+.3d|%#5s' % (5, 'x') }}
{{ '{}'.format() }}
{{ '{:d}'.format('a') }}
{{ '{:x}'.format(1.5) }}
{{ '{'.format() }}
{{ nl|indent }} {{ nl|indent(2,true) }} {{ nl|indent(2,blank=true) }} {{ nl|indent('> ',true,true) }} {{ ''|indent }}
{{ 'a\n'|indent }} {{ 'a\n\n\nb'|indent(1) }}
{{ html|e }} {{ html|escape|e }} {{ (html|e) ~ '<' }} {{ (html|e) + '<' }} {{ '<' + (html|e) }} {{ html|safe }}
{{ (html|safe) + '<' }} {{ (html|safe)|e }} {{ html|forceescape }} {{ (html|safe)|upper }}
{{ ((html|safe)|replace('a','b')) + '<' }} {{ '<'|e|length }} {{ ['<']|join|e }} {{ [html|safe] }} {{ 5|e }}
{{ ('%s'|safe) % '<' }} {{ ('{}'|safe).format('<') }} {{ ('<'|safe).join(['<','>']) }} {{ html|safe is escaped }}
{{ html is escaped }} {{ (html|safe)|string is escaped }} {{ ((html|safe)[:3]) + '<' }} {{ (html|safe)|trim + '<' }}
{{ 'a b&c/d?é'|urlencode }} {{ {'a b':'c d','x':1}|urlencode }} {{ [['k','v/']]|urlencode }}
{{ 'hello wörld foo_bar x-y'|wordcount }} {{ 1000|filesizeformat }} {{ 1|filesizeformat }} {{ 999|filesizeformat }}
{{ 1500000|filesizeformat }} {{ 1024|filesizeformat(true) }} {{ 'a long sentence here'|truncate(10) }}
{{ 'a long sentence here'|truncate(10,true) }} {{ 'a long sentence here'|truncate(10,false,'…',0) }}
{{ 'short'|truncate(3) }}
{{ 5 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(3) }} {{ n is number }} {{ f is float }}
{{ t is boolean }} {{ t is integer }} {{ t is number }} {{ n is integer }} {{ s is string }} {{ l is sequence }}
{{ d is mapping }} {{ d is sequence }} {{ s is iterable }} {{ n is iterable }} {{ no is none }} {{ t is true }}
{{ t is false }} {{ 1 is true }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 'a1' is lower }} {{ '1' is lower }}
{{ range is callable }} {{ n is sameas n }} {{ none is sameas none }} {{ 1 is sameas true }} {{ 1 is eq 1 }}
{{ 1 is ne 2 }} {{ 1 is in [1] }} {{ 'a' is not in 'abc' }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ x is undefined }}
{{ 'upper' is filter }} {{ 'odd' is test }} {{ 'qq' is filter }} {{ x is sequence }} {{ x is iterable }}
{{ l.items is defined }} {{ (l|map('string')) is sequence }} {{ (l|map('string')) is iterable }}
{{ d.items() is sequence }} {{ d.items() is iterable }} {{ range(3) is sequence }} {{ x is callable }}
{{ (1,2) is sequence }} {{ d.items is callable }}
{{ n is foo }}
{{ n|foo }}
{% if false %}{{ n|foo }}{% endif %}ok
{% if true %}{{ n|foo }}{% endif %}ok
{% if false %}{% for x in l %}{{ n|foo }}{% endfor %}{% endif %}ok
{{ n|foo if false else 'k' }}
{{ (n|foo) if false else 'k' }}{{ 'k' if true else n|foo }}
{% for x in l %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}|{% for x in el %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for a,b in nested %}{{ a~b }}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.changed(x > 1) }}|{% endfor %}
{% for x in ints if x is odd %}{{ x }}{{ loop.length }}{% if x > 8 %}{% break %}{% endif %}{% endfor %}
{% for x in l %}{% continue %}{{ x }}{% else %}E{% endfor %}{% for x in l %}{% break %}{% else %}E{% endfor %}{% for x in l %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{% set ns.y = 'q' %}{{ ns.y }}{{ ns['x'] }}{{ ns.zz is defined }}
{% set x.y = 1 %}
{% set d.y = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, e2), f2 = (1,2),3 %}{{ c ~ e2 ~ f2 }}{% set g = 1, 2 %}{{ g }}
{% set a, b = 1 %}
{% set a, b = [1,2,3] %}
{% set x %}block {{ n }}{% endset %}[{{ x }}]{% set y | upper %}abc{% endset %}{{ y }}{% set z | replace('a','b') | upper %}abca{% endset %}{{ z }}
{% macro m(a, b='d', c=a) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1,2) }}{{ m(b=3,a=4) }}{{ m() }}{{ m(1,2,3)|upper }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1,2,3,x=4) }}{{ m(a=1) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1,2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ n }}{% endcall %}
{% macro m() %}<{{ caller(1,2) }}>{% endmacro %}{% call(a,b) m() %}{{ a }}{{ b }}{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ f.name }}{{ f.arguments }}
{% macro f() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ f() }}{% set x = 6 %}{{ f() }}
{% macro f() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ f() }}{{ q is string }}{{ n }}
{% macro f(n) %}{% set n = n + 1 %}{{ n }}{% endmacro %}{{ f(1) }}{{ n }}
{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a','b')|upper %}aa{% endfilter %}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}{% with %}{% set zz = 1 %}{{ zz }}{% endwith %}{{ zz is defined }}
{% if n == 5 %}a{% elif n == 6 %}b{% else %}c{% endif %}{% if not n %}x{% elif n > 100 %}y{% endif %}
{% if false %}{% set tools = 1 %}{% endif %}{{ n }}{{ tools is defined }}
{% generation %}gen {{ n }}{% set gg = 1 %}{% endgeneration %}{{ gg is defined }}
{% raw %}{{ not }} {% x %}{% endraw %} {%- raw -%}  a  {%- endraw -%}  b
a {#- c -#} b {# c #} d {#- {{ x }} #}e
{{- n -}}  a  {{ n -}}  b  {{- n }}
{{ range(5)|list }} {{ range(1,5)|list }} {{ range(5,1,-2)|list }} {{ range(3) }} {{ range(1,9,2) }} {{ range(5)[2] }}
{{ range(5)[1:3] }} {{ range(5)|length }} {{ 3 in range(5) }}
{{ range(1,2,0) }}
{{ range(200000)|length }}
{{ dict(a=1,b=2) }}{{ dict([('x',1)],y=2) }}{{ dict({'q':1}) }}{{ dict() }}
{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}{{ j() }}{{ j() }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %a %A %b %B %d %-d %j %p %%') }}
{{ raise_exception('boom') }}
{{ 'a' 'b' "c" }} {{ 'a\nb\t\x41\u00e9\U0001F600\101\q\'' }}
{{ [1,2] + [3] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ [0] * 3 }} {{ 2 * 'x' }} {{ 'x' * -1 }} {{ true + 1 }}
{{ [1] * true }}
{{ 'a' + 1 }}
{{ [1] + (2,) }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1 // 0.0 }}
{{ none + 1 }}
{{ 'a' < 1 }}
{{ none < none }}
{{ 'a' in 5 }}
{{ 5 in 'a' }}
{{ for }}
{{ 1 2 }}
{{ (1 }}
{{ [1,2 }}
{{ 1 | }}
{% foo %}
{% endif %}
{% if x %}
{% for x in y %}
{{ x
{# open
{% raw %} x
{{ 'abc }}
{{ a.b.c( }}
{% set %}
{% set x = %}
{% for x l %}{% endfor %}
{% macro %}{% endmacro %}
{% break %}
{{ {'a':1,}['a'] }} {{ [1,2,] }} {{ (1,) }} {{ 1, 2 }} {{ () }} {{ {} }} {{ (1) }} {{ {'a':1,'a':2} }}
{{ x.y if x is defined else 'no' }} {{ l.0 }} {{ nested.1.1 }} {{ d.a['x'].2.y }}
{{ s is string and l is not string or false }} {{ n is not none and n > 3 }} {{ not n is odd }} {{ -n|abs }}
{{ -1 is odd }} {{ n > 3 and n < 10 }} {{ 1 if n else 2 if l else 3 }}
{{ l is iterable and l is not mapping }} {{ l|length > 2 }} {{ l|length + 1 }} {{ 'x' ~ l|length }}
{{ 'a' ~ 'b' == 'ab' }} {{ 1 + 1 == 2 }} {{ not l }} {{ not not l }}
{{ loop }}
{{ loop.index }}
{% for item in nested recursive %}[{{ item if item is not sequence or item is string else loop(item) }}]{% endfor %}
{% for a in l %}{% for b in ls %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% set ns = namespace(a=[]) %}{% for i in l %}{% set ns.a = ns.a + [i] %}{% endfor %}{{ ns.a }}
{{ ns }}{{ (1).foo }}{{ 'abc'.foo is defined }}{{ none.foo is defined }}{{ l.foo }}{{ [].x|default('d') }}
{{ none.foo.bar }}
{{ 9223372036854775807 }}{{ -9223372036854775807 }}{{ 9223372036854775806 + 1 }}
{{ '%s' | format }}
{{ l.index(1) }}{{ l.count(3) }}{{ (1,2,2).count(2) }}
{{ l.index(9) }}
{{ 'ABC'|lower|upper|length }}{{ "a"|upper()|lower() }}{{ ls|map('upper')|join(',')|lower }}
{{ [1,[2,[3]]]|string }}{{ 1.0|string }}{{ true|string }}{{ none|string }}{{ ls|string|length }}
{{ 'a'.upper().lower().title() }}{{ ('a' ~ 'b').upper() }}{{ [1,2].0 }}{{ {'a':{'b':1}}.a.b }}{{ 'x,y'.split(',').1 }}
{{ 'abc'|list }}{{ d|list }}{{ 'é😀'|list }}{{ range(2)|list }}{{ 'ab'|batch(1)|list }}
{{ 5|list }}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in nope %}a{% else %}b{% endfor %}
{% for c in 'aé' %}{{ c }}.{% endfor %}
{% for a, b in [1,2] %}{% endfor %}
{% print n, s %}{% print 1 %}
{{ l|attr('count') is defined }}{{ d|attr('b') is defined }}{{ ns|attr('x') is defined }}
{{ 1.5 is number }} {{ 1e400 }} {{ -1e400 }} {{ 1e400|tojson }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ 0.1 + 0.2 }} {{ 3.0 * 2 }} {{ 10 / 3 }}
{{ 3.0|int }} {{ 1e18|int }} {{ 7.0 // 2 }} {{ 7 // 2.0 }} {{ 2 ** 0.5 }} {{ (-8) ** 2 }} {{ -7 // 2.0 }}
{{ -7.0 % 3 }} {{ 0.0 // 1 }}
{{ (l|map('string')|list)[0] }}{{ l|map('string')|first }}{% set g = l|map('string') %}{{ g|list }}{{ g|list }}{{ l|map('string')|length }}
{% set g = l|select %}{% for x in g %}{{ x }}{{ loop.last }}{% endfor %}{% for x in g %}again{% endfor %}{{ g|first is defined }}
{{ [3,1]|sort|join|int + 1 }}{{ ['10','9']|map('int')|sort|list }}{{ ['b',1]|map('string')|sort }}
{{ "%s"|format(s) }}{{ s|format }}{{ 'x'|replace('x', none) }}
{{ 'a'|default(boolean=true) }}{{ none|default('x', boolean=true) }}{{ 0|default(5,true) }}
{{ d['a'].x|length }}{{ d.get('a').get('x')[0] }}{{ d.get('a', {}).get('q', {}).get('z') }}
{{ d.get() }}
{{ 'x'.split(sep=',') }}{{ 'a,b'.split(sep=',', maxsplit=1) }}
{{ 'x'.strip(chars='x') }}
{{ 'x'.upper(1) }}
{{ s|upper(1) }}
{{ l|join(',', 'a', 'b') }}
{{ l|first(1) }}
{{ [none]|tojson }} {{ none|tojson }} {{ 'é"\\/'|tojson }} {{ {'é':1}|tojson }}
{{ {'b':1,'a':[1,{'z':none}]}|tojson(indent=2) }}
{%- for m in ld -%} {{ m.n }} {%- endfor -%}
{% set x = {'a': [1,2,3]} %}{{ x.a[1:] }}{{ x['a'][-1] }}{% set x = dict(x, b=2) %}{{ x }}
{{ {'a':1}.items()|first }} {{ {'a':1}.keys()|first }} {{ {'b':1,'a':2}|sort }} {{ {'b':1}.values()|sum }}
{{ {'b':1}|items|first }}
{% set _ = 1 %}{{ _ }}{% set é = 2 %}{{ é }}{% set a1_b = 3 %}{{ a1_b }}
{{ caller }}{{ varargs }}
{{ not_there.x is defined }}
{{ (not_there|default({})).x is defined }}
{{ 'abc'[1] }} {{ 'abc'['upper'] is defined }} {{ 'abc'[5] is defined }} {{ 'abc'['x'] is defined }}
{{ 'abc'[1.0] is defined }} {{ l[1.0] is defined }} {{ l[true] }} {{ d[1] is defined }} {{ d[[1]] is defined }}
{{ n[0] is defined }}
{{ n[0:1] }}
{{ d[0:1] }}
{{ l[::0] }}
{{ lipsum is defined }}{{ cycler is defined }}{{ joiner is defined }}{{ foo is defined }}
{% if n %}{% endif %}{% if n: %}a{% endif %}{% for x in l: %}{{ x }}{% endfor %}
{%- set x -%}  a  {%- endset -%}[{{ x }}]
{% set x = 1 -%}   b{%+ set y = 2 %}
c
{{ '{{' }}{{ '%}' }}{{ "}}" }}{% if '%}' %}y{% endif %}{{ {'a':{'b':1}} }}{{ {'a':{}}}}
{{ 1 }}{ {{ 2 }} } {% {{ 3 }}
{ { % #} {#x#}{{'#}'}}{#- -#}{#--#}{##}
{{ +5 }}{{ --5 }}{{ - 5 }}{{ +-5 }}{{ not true }}{{ -2.5 }}{{ -true }}{{ +true }}
{{ 'a' if true else 'b' ~ 'c' }}{{ ('a' if true else 'b') ~ 'c' }}{{ 'x' if false else 'y' if false else 'z' }}
{{ [x for x in l] }}
{{ lambda x: x }}
{{ l[0], l[1] }}{{ l[0,1] is defined }}
{{ a = 1 }}
{{ 'x' is string == true }}
{{ 1 is odd is even }}
{{ m is defined and m.x }}{{ n and n is odd }}
{{ f"x" }}
{{ n! }}
{{ n ? }}
{{ “x” }}
{{ 007 }}
{{ 1.e5 }}
{{ .5 }}
{{ 1.5.5 }}
{{ 0_0 }}{{ 1__0 }}
{{ 1e5_0 is defined }}{{ 1_0.5_0 }}
'''

# White space and line breaks around tags, and sources without an end.
BLOCKS = [
    "  {%+ if true %}x{% endif +%}\ny\n\n",
    "{% if true %}\n\n a\n\t{% endif %}\n\nb\n",
    "a\n  {# c #}\n  b {# d #}\nc {#+ x #}\n {#- y -#} \n z",
    "\n\n{{ n }}\n\n",
    "{{ n }}\r\nx\r{% if true %}\r\ny{% endif %}\r\n",
    " {% raw %} \n a {{ b }}\n {% endraw %} \n c",
    "{% raw -%}  \n a{%- endraw %}\n  b",
    "x {% raw %}a{%+ endraw +%}\nb",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\nend",
    "   {% set x = 1 %}   \n  {{ x }}",
    "\u3000 {% if true %}\u3000x\u3000{%- endif %}",
    "{% if true %}\u2003{%- endif %}\n\n",
    "{{ \"a\\\nb\" }}",
    "a\u000b{%- if true %}\u001c{% endif %}",
    "{{\nn\n}}\n{%\nif\ntrue\n%}\nx{% endif\n%}",
    "{# multi\nline #}\n  {% if true %}x{% endif %}",
    "  {{ n }}  \n  {% if n %}  \n  {% endif %}  ",
    "{%if n%}x{%endif%}{{n}}{%-if n-%} y {%-endif-%}",
    "{% set x %}\n a\n{% endset %}\n[{{ x }}]",
    "{%- macro m(a) -%}\n  {{ a }}\n{%- endmacro -%}\n{{ m(1) }}\n{{- m(2) }}\n",
    "text only",
    "",
    "\n",
    "{",
    "{{",
    "{%",
    "{#",
    "a{",
    "%}",
    "}}",
    "{% raw %}{% endraw %}",
    "{%raw%}x{%endraw%}",
    "{%- raw -%} x {% endraw -%} y",
    "{% if n %}{# {% endif %} #}{% endif %}z",
    "  {% if true %}\n  x\n  {% endif %}\ny\n  {%- if true %}  x  {%- endif %}  z {% if true -%}   q   {%- endif -%}   w\n",
]


class FrozenTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def templates():
    lines = LINES.strip("\n").split("\n")
    single = [e for line in lines if "{%" not in line for e in re.findall(r"\{\{.*?\}\}(?!\})", line)]
    return list(dict.fromkeys(lines + BLOCKS + single))


def rendered(template):
    try:
        return chat_template_utils._cached_compile_jinja_template(template).render(**VARIABLES)
    except Exception:  # whatever jinja2 or python raise: the test asks for an error only
        return None


def text():
    chat_template_utils.datetime = FrozenTime
    cases = [[t, rendered(t)] for t in templates()]
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    return f'{{"variables": {json.dumps(VARIABLES, ensure_ascii=True)},\n"cases": [\n{lines}\n]}}\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return 0 if PATH.read_text() == text() else 1
    PATH.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
