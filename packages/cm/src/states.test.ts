import { expect, test } from 'vitest';
import { type Cell, type CmState, STATES } from './states.ts';

const states = Object.keys(STATES) as CmState[];
const cellsOf = (state: CmState): Cell[] => Object.values(STATES[state]);

test('every state is reached from CLOSED, or from the REQ of a peer', () => {
  const reached = new Set<CmState>(['CLOSED', 'REQ_RCVD']);
  for (const state of reached) for (const { next } of cellsOf(state)) if (next) reached.add(next);
  expect([...reached].sort()).toEqual([...states].sort());
});

test('every state can be left towards CLOSED', () => {
  const leads = new Set<CmState>(['CLOSED']);
  for (let before = 0; before < leads.size; ) {
    before = leads.size;
    for (const state of states)
      if (cellsOf(state).some(({ next }) => next && leads.has(next))) leads.add(state);
  }
  expect([...leads].sort()).toEqual([...states].sort());
});

test('a state that repeats a message has cells for a retry and for the last expiry', () => {
  const repeating = states.flatMap((state) =>
    cellsOf(state).flatMap(({ repeat, wait, next }) => (repeat || wait ? [next ?? state] : [])),
  );
  expect(repeating).toContain('REQ_SENT');
  for (const state of repeating) {
    expect(STATES[state].RETRY?.repeat, state).toBe('again');
    expect(STATES[state].TIMEOUT, state).toBeDefined();
  }
});

test('a program can let go of an id in every state, unless the timer ends it', () => {
  for (const state of states) {
    const { destroy, TIMEOUT } = STATES[state];
    expect(state === 'CLOSED' || destroy !== undefined || TIMEOUT?.next !== undefined, state).toBe(true);
  }
});
