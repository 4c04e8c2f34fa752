import { expect, test } from 'vitest';
import { connection, finding } from '../../../testing/analysis.ts';
import { groupFindings } from './group.ts';

const connections = [1, 2, 3, 4].map((id) => connection({ id }));

test('findings of one kind about three connections or more are one, with the worst in words', () => {
  const all = connections.map(({ id }) => finding({ connection: id, text: `#${id}`, frameCount: 10 - id }));
  const [group, ...rest] = groupFindings(all, connections);
  expect(rest).toEqual([]);
  expect(group).toMatchObject({ kind: 'retransmissions', connection: undefined, frameCount: 30 });
  expect(group.text).toContain('4 connections');
  expect(group.text).toContain('#1');
  expect(group.members).toEqual(all);
});

test('two of a kind, and others, stay as they are', () => {
  const all = [
    finding({ connection: 1 }),
    finding({ connection: 2 }),
    finding({ kind: 'rnr', connection: 3 }),
    finding({ kind: 'capture-drops', connection: undefined }),
  ];
  expect(groupFindings(all, connections)).toEqual(all);
});
