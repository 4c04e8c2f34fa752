/** The state of `packages/transport` has owners: its syntax trees hold the rules of owners/rules.ts. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AdapterCounters, QpCounters } from '@node-roce/transport';
import { describe, expect, test } from 'vitest';
// @ts-expect-error: plain JavaScript
import { circlesOf, importsOf } from '../../scripts/imports/graph.mjs';
import { countsIn, violationsIn } from './owners/rules.ts';

const SOURCE = fileURLToPath(new URL('../../packages/transport/src', import.meta.url));

/** The exceptions: data that several write by contract. A name ends in `*` where it stands for all that begin so. */
const ALLOWED: [what: string, reason: string][] = [
  ['QpCounters.*', 'a plain record of counts, added to where things happen'],
  ['AdapterCounters.*', 'a plain record of counts'],
  ['TxBatch.*', 'a batch is data that adapter and link hand each other (batch.ts), native code included'],
  ['RxBatch.*', 'likewise'],
  ['batch.count', 'a packet is added to the batch that is being filled'],
  ['batch.fragmentCount', 'a fragment is added to the batch that is being filled'],
  ['batch.lastRun', 'a run is added to the batch that is being filled, or split (run-slots.ts)'],
  ['to.count', 'a packet is added to the batch that is being filled'],
  ['RegionTable.*', 'memory by index, which links and native code read and fill'],
  ['MemoryRegion.view', "the program's memory, which packets are written to"],
  ['InboundPacket.slab', 'the bytes of the packet being processed, which came from the link'],
  ['Ring.*', 'memory shared with the threads that post and poll; `state` is a word of it'],
  ['Slab.words', 'the memory of rings'],
  ['ring.state', 'the state word of a ring, by the owner of the ring'],
  ['this.#ring.state', 'likewise'],
  ['this.sq.state', 'likewise'],
  ['this.rq.state', 'likewise'],
  ['this.#sq.state', 'likewise'],
  ['this.#rq.state', 'likewise'],
];
const isAllowed = (what: string, [pattern]: [string, string]) =>
  pattern.endsWith('*') ? what.startsWith(pattern.slice(0, -1)) : what === pattern;

const sources = new Map(
  (readdirSync(SOURCE, { recursive: true }) as string[])
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .map((name) => [name, readFileSync(join(SOURCE, name), 'utf8')]),
);

test('no class of transport writes or shows the state of another', () => {
  expect(sources.size).toBeGreaterThan(40);
  const used = new Set<string>();
  const wrong: string[] = [];
  for (const [name, source] of sources) {
    for (const { what, rule, line } of violationsIn(source)) {
      const reason = ALLOWED.find((entry) => isAllowed(what, entry));
      if (reason) used.add(reason[0]);
      else wrong.push(`${name}:${line} ${rule}: ${what}`);
    }
  }
  expect(wrong).toEqual([]);
  // An exception that nothing needs is a hole.
  expect(ALLOWED.map(([pattern]) => pattern).filter((pattern) => !used.has(pattern))).toEqual([]);
});

const RAW = 'raw/raw-queue-pair.ts';
const FRAMES = 'raw/frame-sender.ts';

/** Counts that more than one file adds to. */
const SHARED_COUNTS: Record<string, [files: string[], reason: string]> = {
  sentPackets: [['adapter.ts', FRAMES, 'slots.ts'], 'of the adapter, and of a queue pair'],
  sendErrors: [['adapter.ts', FRAMES], 'frames do not go through the adapter'],
  receivedPackets: [['admission.ts', RAW], 'frames do not go through the adapter'],
  cnpReceived: [['admission.ts', 'qp/queue-pair.ts'], 'of the adapter, and of a queue pair'],
  receivedMessages: [
    [RAW, 'responder/rc.ts', 'responder/uc.ts', 'responder/ud.ts'],
    'each service has its own',
  ],
  droppedPackets: [
    [RAW, 'responder/none.ts', 'responder/uc.ts', 'responder/ud.ts'],
    'each service has its own',
  ],
  outOfBuffer: [[RAW, 'responder/uc.ts', 'responder/ud.ts'], 'each service has its own'],
};

test('one file adds to each count, and nothing reads one', () => {
  const files = new Map<string, Set<string>>();
  const read: string[] = [];
  for (const [file, source] of sources) {
    for (const { name, use, line } of countsIn(source)) {
      if (use === 'read') read.push(`${file}:${line} ${name}`);
      else files.set(name, (files.get(name) ?? new Set()).add(file));
    }
  }
  expect(read).toEqual([]);
  expect([...files.keys()].sort()).toEqual(
    [...new Set([...Object.keys(new QpCounters()), ...Object.keys(new AdapterCounters())])].sort(),
  );
  const shared = [...files].filter(([, by]) => by.size > 1);
  expect(Object.fromEntries(shared.map(([name, by]) => [name, [...by].sort()]))).toEqual(
    Object.fromEntries(Object.entries(SHARED_COUNTS).map(([name, [by]]) => [name, by])),
  );
  expect(
    countsIn('function f(x) { x.counters.n++; if (x.counters.m > 1) x.counters.k += x.counters.l; }'),
  ).toEqual([
    { name: 'n', use: 'add', line: 1 },
    { name: 'm', use: 'read', line: 1 },
    { name: 'k', use: 'add', line: 1 },
    { name: 'l', use: 'read', line: 1 },
  ]);
});

test('no file of transport is part of an import circle, imports of types included', () => {
  const graph = new Map(
    [...sources].map(([name, source]) => {
      const folder = name.includes('/') ? name.slice(0, name.lastIndexOf('/')) : '';
      const local = importsOf(name, source).filter((specifier: string) => specifier.startsWith('.'));
      return [name, local.map((specifier: string) => join(folder, specifier))];
    }),
  );
  expect([...graph.values()].flat().length).toBeGreaterThan(150);
  expect(circlesOf(graph)).toEqual([]);
  graph.set('own.ts', ['adapter.ts']);
  expect(circlesOf(graph).flat().length).toBeGreaterThan(2);
});

describe('the rules find', () => {
  const inClass = (body: string) =>
    `class Part { #list = []; #at = new Float64Array(4).fill(0); #n = 0; ${body} }`;
  test.each<[string, string, string[]]>([
    ['a public field', inClass('count = 0;'), ['mutable field Part.count']],
    ['a public field without a value', inClass('other: Part;'), ['mutable field Part.other']],
    ['a parameter that is a field', inClass('constructor(public n: number) {}'), ['mutable field Part.n']],
    ['a public array', inClass('readonly all: number[] = [];'), ['exposed collection Part.all']],
    ['a public Map', inClass('readonly all = new Map<number, Part>();'), ['exposed collection Part.all']],
    [
      'a getter that shows an array',
      inClass('get list() { return this.#list; }'),
      ['exposed collection Part.list'],
    ],
    [
      'a method that shows an array',
      inClass('all() { if (1) return this.#at; }'),
      ['exposed collection Part.all'],
    ],
    ['a setter', inClass('set n(v: number) { this.#n = v; }'), ['setter Part.n']],
    ['an assignment', 'function f(x: Part) { x.y = 1; }', ['foreign write x.y']],
    ['an assignment with an operator', 'const f = (x) => { x.y += 1; };', ['foreign write x.y']],
    ['an update', 'function f(x) { x.part.y++; }', ['foreign write x.part.y']],
    ['a deletion', 'function f(x) { delete x.y; }', ['foreign write x.y']],
    [
      'a pattern',
      'function f(x, z) { ({ a: x.y, b: [x.z = 2] } = z); }',
      ['foreign write x.y', 'foreign write x.z'],
    ],
    ['a loop', 'function f(x, z) { for (x.y of z); }', ['foreign write x.y']],
    ['a write to a part', inClass('f() { this.other.y = 1; }'), ['foreign write this.other.y']],
    ['a write to a private part', inClass('f() { this.#n.y = 1; }'), ['foreign write this.#n.y']],
    ['a write to another of its class', inClass('f(p: Part) { p.#n = 1; }'), ['foreign write p.#n']],
    ['a write to what a call returns', 'function f() { g().y = 1; }', ['foreign write g().y']],
    [
      'the length of another array',
      'function f(x) { const { y } = x; y.length = 0; }',
      ['foreign write y.length'],
    ],
    [
      'a field that is another’s own',
      'function f(x) { (x as Own<Part>).y = 1; }',
      ['foreign write (x as Own<Part>).y'],
    ],
    ['a field by another type', inClass('f() { (this as Part).y = 1; }'), ['foreign write (this as Part).y']],
    ['a counter that is set', 'function f(x) { x.counters.n = 1; }', ['foreign write x.counters.n']],
  ])('%s', (_what, source, expected) => {
    expect(violationsIn(source).map(({ rule, what }) => `${rule} ${what}`)).toEqual(expected);
  });

  test.each<[string, string]>([
    ['private state', inClass('f() { this.#n++; this.#list = []; }')],
    ['a part that guards its own state', inClass('readonly part = new Part();')],
    ['a readonly view of an array', inClass('get list(): readonly number[] { return this.#list; }')],
    ['a copy of an array', inClass('get list() { return this.#list.slice(); }')],
    [
      'a field that is read-only to others',
      inClass('readonly on: boolean = false; f() { (this as Own<Part>).on = true; }'),
    ],
    ['an element', inClass('f(x) { this.#at[1] = 2; x[3] = 4; }')],
    [
      'the length of an array of its own',
      inClass('f() { const list = this.#list; list.length = 0; this.#list.length = 0; }'),
    ],
    ['an object made here', 'function f() { const x = { y: 1 }; x.y = 2; return x; }'],
    ['a counter', 'function f(x) { x.counters.n++; const { counters } = x; counters.m++; }'],
  ])('nothing wrong with %s', (_what, source) => {
    expect(violationsIn(source)).toEqual([]);
  });
});
