/** Descriptions of the passive rules: requirements that a capture shows to be kept, without a tester. */
import type { NamedRule, RuleSpec } from '../rule.ts';

/** The code of these rules stands in `requester.ts` (TRC-01 to TRC-06), `responder.ts` (TRC-11 to TRC-17) and `trace.ts`. */
const passive = <Id extends string>(id: Id, spec: Omit<RuleSpec, 'needs'>) =>
  ({ id, needs: ['capture'], ...spec }) as const satisfies NamedRule;

export const PASSIVE_RULES = [
  passive('TRC-01', {
    title: 'new requests have consecutive PSNs',
    section: '9.7.2',
    text: 'A responder takes a PSN that was left out for a loss.',
  }),
  passive('TRC-02', {
    title: 'the requester goes back to the first packet that is not acknowledged, and leaves out none',
    section: '9.7.5.2.3, 9.9.2',
    text: 'A responder that waits for a packet drops all behind it: one that is left out costs a time-out each time.',
  }),
  passive('TRC-03', {
    title: 'a retransmitted packet is the packet that was sent before; a READ asks for a part of itself',
    section: '9.7.5.1.4',
    text: 'The responder may have executed the first copy: another second one is never executed, or at another place.',
  }),
  passive('TRC-04', {
    title: 'messages are FIRST, MIDDLE and LAST of one kind, cut at one path MTU, of the length in the RETH',
    section: '9.7.3.1, 9.7.4.1.6',
    text: 'A responder ends the connection for anything else.',
  }),
  passive('TRC-05', {
    title: 'after an RNR NAK the requester waits for the time in it',
    section: '9.7.5.2.8',
    text: 'A peer without receives is short of time, and repetitions take it.',
  }),
  passive('TRC-06', {
    title: 'no SEND beyond the credits but one',
    section: '9.7.7.2',
    text: 'Receives that do not exist cost an RNR wait each.',
  }),
  passive('TRC-11', {
    title: 'no answer to a packet that was not sent',
    section: '9.7.5.1.2',
    text: 'A requester completes what was never done, or loses count.',
  }),
  passive('TRC-12', {
    title: 'a packet that is missing is not acknowledged',
    section: '9.7.5.1.2',
    text: 'The requester reports data as delivered that is nowhere.',
  }),
  passive('TRC-13', {
    title: 'ACKs do not go back',
    section: '9.7.5.1.2',
    text: 'An ACK stands for all packets before it; a requester takes one that goes back for an old one.',
  }),
  passive('TRC-14', {
    title: 'one sequence NAK for a gap, with the first missing PSN',
    section: '9.7.4.1.1, 9.7.5.2.8',
    text: 'Without it each loss costs a time-out; with another PSN, or several, the requester goes back too far or too often.',
  }),
  passive('TRC-15', {
    title: 'the MSN counts the messages that are acknowledged',
    section: '9.7.7.1',
    text: 'Requesters compute their credits from it.',
  }),
  passive('TRC-16', {
    title: 'READ responses have the opcode, the length and the order that the request asks for',
    section: '9.4.4, 9.7.5.1.5',
    text: 'A requester places each response by its order alone.',
  }),
  passive('TRC-17', {
    title: 'no ACK overtakes READ responses',
    section: '9.7.3.1',
    text: 'A requester takes the ACK for a sign that the responses were lost, and asks again.',
  }),
  passive('TRC-21', {
    title: 'a CNP has BECN set, 16 bytes of 0, and a marked packet before it',
    section: 'A17.9.3',
    text: 'A sender slows down for each CNP.',
  }),
];

export type PassiveId = (typeof PASSIVE_RULES)[number]['id'];
