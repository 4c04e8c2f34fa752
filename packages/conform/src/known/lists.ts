/** Known deviations of devices, by the name for `--device`. Each has its reason; where to look for more stands there. */
import type { KnownList } from '../known.ts';

const OUTSIDE_OF_WINDOW =
  'one byte past its end: wanted NAK 0x62 (access) psn+2, got ACK packet psn+2 ACK | one byte before it: wanted NAK 0x62 (access) psn+2, got ACK packet psn+2 ACK';

const UNTESTABLE: KnownList['untestable'] = {
  'KEY-11': 'its library has no ibv_rereg_mr.',
};

/** rdma_rxe of Linux 6.1 and 6.12. */
const RXE: KnownList['deviations'] = {
  'DUP-05': {
    is: 'the rest begins with RDMA Read Response Middle psn+1',
    because: 'docs/quirks.md, resumedReadIsMiddle: a READ that asks for the rest goes on as the first one.',
  },
  'DUP-06': {
    is: 'whole READ again: responses none, wanted 0, 1, 2, 3',
    because: 'docs/quirks.md, repeatedReadForgetsItsBeginning: a partial repetition replaces the READ.',
  },
  'ATO-13': {
    is: 'ACK: completed with success',
    because: 'an ACK completes an atomic: check_ack in rxe_comp.c takes it for an answer.',
  },
  'ACK-12': {
    is: 'ACK of a PSN not sent: completed 1:SUCCESS, 2:SUCCESS | then the ACK: completions none, wanted 1:SUCCESS, 2:SUCCESS',
    because: 'the requester compares PSNs with what it completes, not with what it has sent.',
  },
  'CRD-01': {
    is: '8 SENDs with 0 credits',
    because: 'rxe counts no credits of its peer.',
  },
  'RNR-02': {
    is: 'behind it: wanted silence, got ACK packet psn+0 NAK 0x60 (sequence)',
    because:
      'docs/quirks.md, sequenceNakAfterRnrNak: the first packet behind an RNR NAK draws a sequence NAK.',
  },
  'RNR-19': {
    is: 'goes on with Send First psn+0',
    because: 'an RNR NAK acknowledges nothing: rxe begins the message anew, whose beginning the peer has.',
  },
  'CM-30': {
    is: 'DREQ is not repeated',
    because:
      'rping ends with its connection, and with the program Linux forgets the DREQ: if it is lost, the peer keeps the connection.',
    sometimes: true,
  },
  'RNR-20': {
    is: 'RNR NAK of a PSN not sent: completed 1:SUCCESS | then the ACK: completions none, wanted 1:SUCCESS',
    because: 'as ACK-12: a PSN that was not sent is taken, and completes what is before it.',
  },
  'ATO-14': {
    is: 'bytes in the field',
    because:
      'rxe_req.c writes the field for COMPARE AND SWAP only: in a FETCH ADD it has what was in the memory of the packet before.',
    sometimes: true,
  },
  'TRC-06': {
    is: 'SENDs without credit',
    because: 'rxe counts no credits of its peer (CRD-01).',
  },
  'OPC-01': {
    is: 'request: wanted NAK 0x61 (invalid) psn+0, got silence',
    because: 'disputed: reserved opcodes are dropped where packets are admitted.',
  },
  'ECN-01': {
    is: 'no CNP',
    because: 'rxe has no congestion notification.',
  },
  'RSP-02': {
    is: 'MigReq is 0',
    because: 'rxe does not set MigReq.',
  },
  'LEN-10': {
    is: 'request: wanted NAK 0x61 (invalid) psn+0, got ACK packet psn+0 NAK 0x63 (operational) | the receive: completions 1:LOC_QP_OP_ERR, wanted 1:LOC_LEN_ERR',
    because: 'docs/quirks.md, shortReceiveIsOperationalError: NAK 0x63 and LOC_QP_OP_ERR.',
  },
  'LEN-14': {
    is: 'request: wanted NAK 0x61 (invalid) psn+0, got RDMA Read Response Only psn+0 ACK',
    because: 'a payload of a READ request is not looked at.',
  },
  'LEN-16': {
    is: 'request: wanted NAK 0x61 (invalid) psn+1, got ACK packet psn+1 NAK 0x63 (operational) | the receive: completions 1:LOC_QP_OP_ERR, wanted 1:LOC_LEN_ERR',
    because: 'docs/quirks.md, shortReceiveIsOperationalError: NAK 0x63 and LOC_QP_OP_ERR.',
  },
  'KEY-12': {
    is: OUTSIDE_OF_WINDOW,
    because:
      'docs/quirks.md, windowBoundsNotChecked: the range is compared with the region behind the window.',
  },
  'KEY-14': {
    is: OUTSIDE_OF_WINDOW,
    because:
      'docs/quirks.md, windowBoundsNotChecked: the range is compared with the region behind the window.',
  },
  'CNT-01': {
    is: 'rcvd_seq_err: fewer than there were',
    because:
      'rxe_comp.c counts a sequence NAK only if it acknowledges a packet before the one that it names.',
  },
  'TMO-01': {
    is: 'repeated before T',
    because: 'docs/quirks.md, timerRoundedDown and timerNotRestarted: the timer is rounded to jiffies.',
    sometimes: true,
  },
  'TMO-18': {
    is: 'repeated before T',
    because: 'docs/quirks.md, timerNotRestarted: the timer runs since the request before.',
    sometimes: true,
  },
  'TMO-19': {
    is: 'repeated before T',
    because: 'docs/quirks.md, timerNotRestarted: the timer runs since the request before.',
    sometimes: true,
  },
  'TMO-06': {
    is: 'retries used up: completions none, wanted 1:RETRY_EXC_ERR',
    because: 'rxe_comp.c takes retry_cnt 7 for ever, as rnr_retry 7.',
  },
  'NAK-03': {
    is: 'NAK of a PSN not sent: completed 1:SUCCESS | then the ACK: completions none, wanted 1:SUCCESS',
    because: 'as ACK-12: a PSN that was not sent is taken, and completes what is before it.',
  },
  'RD-05': {
    is: 'ACK of a READ: completed with success',
    because: 'an ACK completes a READ: check_ack in rxe_comp.c takes it for an answer.',
  },
  'RD-13': {
    is: 'asked again when the timer fired, or never',
    because: 'READ responses out of order are dropped; the READ is asked for again when the timer fires.',
  },
  'UC-03': {
    is: 'received nothing, wanted SUCCESS 16 B',
    because: 'docs/quirks.md, messageAfterABrokenOneIsLost.',
  },
  'UC-04': {
    is: 'received 17, wanted 16, 17',
    because: 'docs/quirks.md, messageAfterABrokenOneIsLost.',
  },
  'UC-05': {
    is: 'three messages: completions none, wanted 1000:SUCCESS, 1001:SUCCESS, 1002:SUCCESS',
    because: 'docs/quirks.md, deafAfterABrokenMessage.',
  },
  'UC-09': {
    is: 'the one behind it: completions none, wanted 1001:SUCCESS',
    because: 'docs/quirks.md, deafAfterABrokenMessage.',
  },
  'UD-07': {
    is: 'another Q_Key in UD Send Only psn+0',
    because: 'docs/quirks.md, topBitQkeyIsSent.',
  },
  'CM-13': {
    is: '128 bytes: answered',
    because: 'the length of a MAD is not looked at: one of half the bytes is answered.',
  },
};

export const LISTS: Readonly<Record<string, KnownList>> = {
  'rxe-6.1': {
    device: 'rdma_rxe of Linux 6.1',
    seen: 'Debian 6.1.192-3, 29 November 2026',
    deviations: {
      ...RXE,
      'LEN-03': {
        is: 'LAST: wanted NAK 0x61 (invalid) psn+1, got ACK packet psn+1 ACK',
        because: 'the LAST of no bytes is not refused; Linux 6.12 refuses it.',
      },
      'STA-07': {
        is: 'no event, wanted send queue drained',
        because:
          'a queue pair in SQD stays there: the event does not come when the last request is acknowledged, and ibv_modify_qp to RTS is refused (EINVAL). Linux 6.12 raises it.',
      },
      'STA-08': {
        is: 'no event, wanted last WQE reached',
        because: 'it raises no such event; Linux 6.12 does.',
      },
      'UD-04': {
        is: 'the next datagram: LOC_QP_OP_ERR, WR_FLUSH_ERR',
        because: 'a datagram that does not fit ends the queue pair; Linux 6.12 drops it.',
      },
    },
    untestable: {
      ...UNTESTABLE,
      ...Object.fromEntries(
        ['PLC-01', 'PLC-02', 'PLC-03', 'PLC-04', 'PLC-05', 'PLC-07', 'PLC-08'].map((id) => [
          id,
          'FLUSH and ATOMIC WRITE are of later releases.',
        ]),
      ),
    },
  },
  'rxe-6.12': {
    device: 'rdma_rxe of Linux 6.12',
    seen: 'Debian 6.12.118-1, 29 November 2026',
    deviations: {
      ...RXE,
      'STA-07': {
        is: 'the request that waited is not sent in RTS',
        because:
          'ibv_modify_qp from SQD to RTS does not start the send queue: a request that was posted in SQD waits for the next one.',
      },
      'PLC-01': {
        is: 'FLUSH: wanted a READ response of no bytes psn+0, got silence | the next FLUSH: wanted a READ response of no bytes psn+1, got silence',
        because:
          'docs/quirks.md, flushIsCoveredTwice: its ICRC of a FLUSH is another than the specification has, and no other is taken.',
      },
    },
    untestable: {
      ...UNTESTABLE,
      'PLC-03': 'it answers no FLUSH (PLC-01).',
      'PLC-08': 'it answers no FLUSH (PLC-01).',
    },
  },
  'node-roce': {
    device: 'node-roce',
    seen: '0.2.0, 29 November 2026',
    deviations: {
      'HDR-11': {
        is: 'ID 48879: wanted ACK psn+3, got silence',
        because:
          'docs/icrc.md: the kernel hides the IPv4 identification from a UDP socket; it is solved within a window.',
      },
      'HDR-13': {
        is: 'DF 0: wanted ACK psn+1, got silence',
        because:
          'docs/icrc.md: the kernel hides the IPv4 flags from a UDP socket; a source that sets DF is expected to go on with it.',
      },
      'ECN-01': {
        is: 'no CNP',
        because: 'docs/congestion.md: congestion notification is off by default.',
      },
      'TMO-01': {
        is: 'repeated before T',
        because: 'docs/architecture.md: probes ask again after two round trips, without a retry.',
        sometimes: true,
      },
      'TMO-02': {
        is: 'more than 4 sends with retry_cnt 3',
        because: 'docs/architecture.md: probes ask again after two round trips, without a retry.',
        sometimes: true,
      },
      'TMO-18': {
        is: 'repeated before T',
        because: 'docs/architecture.md: probes ask again after two round trips, without a retry.',
        sometimes: true,
      },
      'CM-36': {
        is: 'a READ is retransmitted more than once with retry count 1',
        because: 'docs/architecture.md: probes ask again after two round trips, without a retry.',
        sometimes: true,
      },
      'TMO-19': {
        is: 'repeated before T',
        because: 'docs/architecture.md: probes ask again after two round trips, without a retry.',
        sometimes: true,
      },
    },
    untestable: {
      'CNT-01': 'programs of roce run find no hw_counters; docs/counters.md has the counts.',
    },
  },
};
