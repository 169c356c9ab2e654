#include "lockstep/transport/interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const std::vector<NetworkInterface> kInterfaces = {
    {"lo", true, {"127.0.0.1", "::1"}},
    {"eth0", true, {"fe80::1%eth0", "10.0.0.2", "2001:db8::2"}},
    {"eth1", false, {"10.0.1.2"}},
    {"wifi", true, {}}};

std::string refusal(const std::string& choice) {
  try {
    return choose_address(kInterfaces, choice, "") + " was chosen";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}

TEST(Interface, ANameOrAnAddressStandsForAnAddress) {
  EXPECT_EQ(choose_address(kInterfaces, "lo", ""), "127.0.0.1");
  EXPECT_EQ(choose_address(kInterfaces, "lo", "2001:db8::9"), "::1");
  EXPECT_EQ(choose_address(kInterfaces, "eth0", ""), "10.0.0.2");
  EXPECT_EQ(choose_address(kInterfaces, "eth0", "fe80::7%eth0"), "2001:db8::2");
  EXPECT_EQ(choose_address(kInterfaces, "10.0.0.2", "::1"), "10.0.0.2");
  EXPECT_EQ(choose_address(kInterfaces, "2001:0db8:0::2", ""), "2001:db8::2");
  EXPECT_EQ(choose_address(kInterfaces, "fe80::1", ""), "fe80::1%eth0");
  EXPECT_EQ(choose_address(kInterfaces, "fe80::1%eth0", ""), "fe80::1%eth0");
}

TEST(Interface, WhatIsNoneIsRefusedWithTheListOfThose) {  // S-RDV-05
  for (const std::string choice :
       {"eth9", "^lo,docker", "10.0.0.5", "lo,eth9", "eth1", "10.0.1.2", "wifi", "fe80::1%lo"}) {
    EXPECT_THAT(refusal(choice),
                AllOf(HasSubstr("LOCKSTEP_INTERFACE='" + choice + "'"),
                      HasSubstr("name of one network interface or one address"),
                      HasSubstr("lo (127.0.0.1, ::1); eth0 (fe80::1, 10.0.0.2, 2001:db8::2); "
                                "eth1 (down, 10.0.1.2); wifi (no address)")));
  }
  EXPECT_THAT(refusal("eth1"), HasSubstr("is down;"));
  EXPECT_THAT(refusal("10.0.0.5"), HasSubstr("no address of this host"));
}

TEST(Interface, ThisHostHasALoopback) {
  EXPECT_EQ(address_of_interface(""), "");
  EXPECT_EQ(address_of_interface("127.0.0.1"), "127.0.0.1");
  EXPECT_THAT(network_interfaces(), Contains(testing::Field(&NetworkInterface::name, "lo")));
}

TEST(Interface, AScopeIsEachHostsOwn) {
  EXPECT_EQ(without_scope("fe80::1%eth0"), "fe80::1");
  EXPECT_EQ(with_scope_of("fe80::2", "fe80::1%eth0"), "fe80::2%eth0");
  EXPECT_EQ(with_scope_of("10.0.0.1", "fe80::1%eth0"), "10.0.0.1");
  EXPECT_EQ(with_scope_of("fe80::2", "127.0.0.1"), "fe80::2%lo");
}

}  // namespace
}  // namespace lockstep
