import {
  COPY_WORDS,
  Copy,
  FRAGMENT_WORDS,
  FRAME_SLOT_WORDS,
  Fragment,
  Frame,
  Icrc,
  NO_PEER,
  RX_SLOT_WORDS,
  Rx,
  TX_HEADER_STRIDE,
  TX_SLOT_WORDS,
  Tx,
} from '@node-roce/transport';
import { expect, test } from 'vitest';
import { layout } from '../index.js';

test('the words of the batches are those of transport', () => {
  expect(layout).toMatchObject({
    TX_HEADER_STRIDE,
    TX_SLOT_WORDS,
    FRAGMENT_WORDS,
    RX_SLOT_WORDS,
    COPY_WORDS,
    FRAME_SLOT_WORDS,
    NO_PEER,
    Tx,
    Fragment,
    Rx,
    Icrc,
    Copy,
    Frame,
  });
});

test('a slot of a capture has its words side by side', () => {
  expect(Object.values(layout.Captured).sort()).toEqual([...Array(layout.CAPTURED_SLOT_WORDS).keys()]);
});
