/** Sizes of a queue pair's queues: what is asked for, and what is had. */
import { TMH_BYTES } from '@node-roce/wire';
import type { QpCap } from '../control.ts';
import { invalid } from '../errors.ts';
import { RENDEZVOUS_ENTRIES } from '../tags/rendezvous.ts';

interface CapLimits {
  readonly maxQpWr: number;
  readonly maxSge: number;
  readonly maxInlineData: number;
}

/** With an SRQ, and for XRC, the sizes of the receive queue are ignored (ibv_create_qp(3)). */
export function checkCap(limits: CapLimits, asked: QpCap, hasNoReceives: boolean): QpCap {
  const cap = hasNoReceives ? { ...asked, maxRecvWr: 0, maxRecvSge: 0 } : asked;
  const { maxQpWr, maxSge, maxInlineData } = limits;
  const most: [keyof QpCap, number][] = [
    ['maxSendWr', maxQpWr],
    ['maxRecvWr', maxQpWr],
    ['maxSendSge', maxSge],
    ['maxRecvSge', maxSge],
    ['maxInlineData', maxInlineData],
  ];
  for (const [name, limit] of most) {
    const value = cap[name];
    if (!Number.isInteger(value) || value < 0 || value > limit) {
      throw invalid(`cap.${name}`, `${value} can't be had`, `0 … ${limit}`);
    }
  }
  return {
    maxSendWr: Math.max(1, cap.maxSendWr),
    maxRecvWr: hasNoReceives ? 0 : Math.max(1, cap.maxRecvWr),
    maxSendSge: Math.max(1, cap.maxSendSge),
    maxRecvSge: hasNoReceives ? 0 : Math.max(1, cap.maxRecvSge),
    maxInlineData: cap.maxInlineData,
  };
}

/** Sizes of a send queue that the program posts nothing to. */
export function rendezvousCap(cap: QpCap, maxSge: number): QpCap {
  return {
    ...cap,
    maxSendWr: RENDEZVOUS_ENTRIES,
    maxSendSge: Math.max(cap.maxSendSge, maxSge),
    maxInlineData: Math.max(cap.maxInlineData, TMH_BYTES),
  };
}
