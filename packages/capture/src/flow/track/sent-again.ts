/** A request packet that comes again. PSNs are unwrapped. */
export interface SentAgain {
  psn: number;
  /** Past its PSNs. */
  next: number;
  time: number;
  /** The latest time at which it can have been sent: before `time` where its Identification shows that it was overtaken. */
  sentBy: number;
  /** Past the PSNs of the message that it is the first packet of, as far as it was seen. */
  messageEnd: number;
  /** When it was sent before, or was noticed to be missing. */
  lastSent: number;
  /** When the sender last sent something new. */
  lastNew: number;
  /** The frame of that; 0: it was not seen. */
  lastFrame: number;
  /** It was not seen: the first packet behind it that was; 0: it was seen. */
  gapFrame: number;
  /** The mean of the last round trips, from packets that were sent once; 0: none is known. */
  roundTrip: number;
  /** The oldest PSN that is not answered, as the capture has it. */
  unacked: number;
  /** Past the newest PSN sent. */
  end: number;
  /** Of the sender's packets: rxe has 0 there, ConnectX and node-roce 1. */
  migReq: boolean;
  /** The order by its Identification; one of `IdOrder`. */
  idOrder: number;
  /** `Identifications.followsOn`: nobody went back with it. */
  followsOn: boolean;
  /** It was not seen before. */
  unseen: boolean;
  /** It is a READ or atomic. */
  asks: boolean;
  /** Or its sender asks for an ACK. */
  needsAnswer: boolean;
  /** It follows a READ or atomic. */
  afterAsking: boolean;
  /** Both directions are in the capture: without the other one there are no NAKs to see. */
  heard: boolean;
}
