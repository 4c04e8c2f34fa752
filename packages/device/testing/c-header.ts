/** The messages of messages.ts and the words of rings for C: native/ibverbs/messages.h. */
import {
  BellControl,
  CONTROL_WORDS,
  Control,
  CQE_WORDS,
  Cqe,
  RecvWqe,
  SendWqe,
  SGE_WORDS,
  Sge,
  STAMPED_CQE_WORDS,
  TAGGED_CQE_WORDS,
  WaitingThreads,
} from '@node-roce/transport';
import {
  CALLS,
  CqBits,
  type Field,
  GROUPS,
  HEADER_BYTES,
  type Layout,
  MAX_PAYLOAD,
  MemoryKind,
  PROTOCOL_VERSION,
  TOKEN_BYTES,
} from '../src/messages.ts';

const groupNames = new Map<unknown, string>(Object.entries(GROUPS).map(([name, group]) => [group, name]));

const enumeration = (name: string, prefix: string, values: Record<string, number>): string => {
  const rows = Object.entries(values).map(([key, value]) => `  ROCE_${prefix}${key} = ${value},`);
  return [`enum roce_${name} {`, ...rows, '};', ''].join('\n');
};

/** The members of a struct, one line each. */
function members(layout: Layout, indent: string): string[] {
  return Object.entries(layout).flatMap(([name, field]) => member(name, field, indent));
}

function member(name: string, field: Field | 'u8', indent: string): string[] {
  if (typeof field === 'number') return [`${indent}uint8_t ${name}[${field}];`];
  if (typeof field === 'string') return [`${indent}uint${field.slice(1)}_t ${name};`];
  if (Array.isArray(field)) return list(name, field as Extract<Field, readonly unknown[]>, indent);
  const group = groupNames.get(field);
  if (group !== undefined) return [`${indent}struct roce_${group} ${name};`];
  return [`${indent}struct {`, ...members(field as Layout, `${indent}  `), `${indent}} ${name};`];
}

function list(name: string, [element, most]: Extract<Field, readonly unknown[]>, indent: string): string[] {
  const rows = typeof element === 'number' ? `[${most}][${element}]` : `[${most}]`;
  const [row] = typeof element === 'number' ? member(name, 'u8', indent) : member(name, element, indent);
  return [`${indent}uint32_t ${name}_count;`, `${row.slice(0, -1)}${rows};`];
}

const struct = (name: string, layout: Layout): string =>
  [`struct roce_${name} {`, ...members(layout, '  '), '};', ''].join('\n');

/** Bytes of a message that are sent: a list is as long as its count. */
function length(kind: string, layout: Layout): string {
  const last = Object.entries(layout).at(-1);
  if (!last || !Array.isArray(last[1])) return `sizeof *${kind}`;
  const [name] = last;
  return `offsetof(struct roce_%_${kind}, ${name}) + ${kind}->${name}_count * sizeof *${kind}->${name}`;
}

/** A call over the connection of a context. */
function call(name: string, { request, reply }: { request: Layout; reply: Layout }): string {
  const lower = name.toLowerCase();
  const isThere = (layout: Layout) => Object.keys(layout).length > 0;
  const asks = isThere(request);
  const answers = isThere(reply);
  const parameters = [
    'struct roce_context *r',
    ...(asks ? [`const struct roce_${lower}_request *request`] : []),
    ...(answers ? [`struct roce_${lower}_reply *reply`] : []),
  ];
  const values = [
    ...(asks ? ['request', length('request', request).replace('%', lower)] : ['NULL', '0']),
    ...(answers ? ['reply', 'sizeof *reply'] : ['NULL', '0']),
  ];
  return [
    `static inline int roce_ask_${lower}(${parameters.join(', ')}) {`,
    `  return roce_ask(r, ROCE_${name}, ${values.join(', ')});`,
    '}',
    '',
  ].join('\n');
}

/** The whole header. */
export function cHeader(): string {
  const rows = Object.entries<{ number: number; request: Layout; reply: Layout }>(CALLS);
  const numbers = Object.fromEntries(rows.map(([name, { number }]) => [name, number]));
  const structs = rows.flatMap(([name, { request, reply }]) =>
    Object.entries({ request, reply })
      .filter(([, layout]) => Object.keys(layout).length > 0)
      .map(([kind, layout]) => struct(`${name.toLowerCase()}_${kind}`, layout)),
  );
  return `${[
    '// Written from packages/device/src/messages.ts, where the comments are, and packages/transport/src/{rings,entry-words}.ts:',
    '// npx vitest run packages/device/src/protocol.test.ts -u',
    '#pragma once',
    '#include <stddef.h>',
    '#include <stdint.h>',
    '',
    `#define ROCE_PROTOCOL_VERSION ${PROTOCOL_VERSION}`,
    `#define ROCE_MAX_PAYLOAD ${MAX_PAYLOAD}`,
    `#define ROCE_HEADER_BYTES ${HEADER_BYTES}`,
    `#define ROCE_TOKEN_BYTES ${TOKEN_BYTES}`,
    '',
    enumeration('call', '', numbers),
    'static inline const char *roce_call_name(enum roce_call call) {',
    '  switch (call) {',
    ...rows.map(([name]) => `    case ROCE_${name}: return "${name}";`),
    '  }',
    '  return "?";',
    '}',
    '',
    enumeration('kind_of_memory', 'MEMORY_', MemoryKind),
    enumeration('cq_bits', 'CQ_', CqBits),
    '// Words of control pages and entries.',
    enumeration('control', 'CONTROL_', { ...Control, ...BellControl }),
    enumeration('waiting', 'WAITING_', WaitingThreads),
    enumeration('send_wqe', 'SEND_', SendWqe),
    enumeration('recv_wqe', 'RECV_', RecvWqe),
    enumeration('sge_words', 'SGE_', Sge),
    enumeration('cqe', 'CQE_', Cqe),
    `#define ROCE_CONTROL_WORDS ${CONTROL_WORDS}`,
    `#define ROCE_SGE_WORDS ${SGE_WORDS}`,
    '// Entries have times and tags where the queue was made so.',
    `#define ROCE_CQE_WORDS ${CQE_WORDS}`,
    `#define ROCE_STAMPED_CQE_WORDS ${STAMPED_CQE_WORDS}`,
    `#define ROCE_TAGGED_CQE_WORDS ${TAGGED_CQE_WORDS}`,
    '',
    '// As they go over the socket.',
    '#pragma pack(push, 1)',
    '',
    ...Object.entries(GROUPS).map(([name, group]) => struct(name, group)),
    ...structs,
    '#pragma pack(pop)',
    '',
    'struct roce_context;',
    '// Sends a request and waits for its reply, whose missing bytes are zeros. 0, or errno, which is set.',
    'int roce_ask(struct roce_context *r, enum roce_call call, const void *request, size_t request_bytes, void *reply, size_t reply_bytes);',
    '',
    ...rows.map(([name, row]) => call(name, row)),
  ]
    .join('\n')
    .trimEnd()}\n`;
}
