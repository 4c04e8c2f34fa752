/** A reliable connection of a case. */
export interface CaseConnection {
  testerQpn: number;
  deviceQpn: number;
  /** First PSN of the tester's requests. */
  psn: number;
  pathMtu: number;
}
