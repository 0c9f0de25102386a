package v20170312

import "errors"

var errStub = errors.New("tencent-vpc is not built in")

type (
	Client struct{}
	Filter struct {
		Name   *string
		Values []*string
	}
)

type Route struct {
	RouteId                                                 *uint64
	DestinationCidrBlock, GatewayType, GatewayId, RouteType *string
	Enabled                                                 *bool
}
type RouteTable struct {
	RouteTableId *string
	RouteSet     []*Route
}
type (
	DescribeRouteTablesRequest  struct{ Filters []*Filter }
	DescribeRouteTablesResponse struct {
		Response *struct{ RouteTableSet []*RouteTable }
	}
)

type RoutesRequest struct {
	RouteTableId *string
	Routes       []*Route
}
type RoutesResponse struct{}

func NewClientWithSecretId(id, key, region string) (*Client, error) { return &Client{}, nil }
func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}
func NewDeleteRoutesRequest() *RoutesRequest { return &RoutesRequest{} }
func NewCreateRoutesRequest() *RoutesRequest { return &RoutesRequest{} }
func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errStub
}
func (*Client) DeleteRoutes(*RoutesRequest) (*RoutesResponse, error) { return nil, errStub }
func (*Client) CreateRoutes(*RoutesRequest) (*RoutesResponse, error) { return nil, errStub }
